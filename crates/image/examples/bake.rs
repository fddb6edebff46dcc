fn main() {
    let a: Vec<String> = std::env::args().collect();
    let checked = bulkhead_manifest::load(std::path::Path::new(&a[1]), &Default::default())
        .unwrap_or_else(|d| panic!("{d:?}"));
    let dir = "target/x86_64-unknown-none/privileged";
    let boot = std::fs::read(format!("{dir}/bulkhead-boot")).unwrap();
    let monitor = std::fs::read(format!("{dir}/bulkhead-monitor")).unwrap();
    let b = bulkhead_image::bake(
        &checked.system,
        &bulkhead_image::Programs {
            boot: &boot,
            monitor: &monitor,
        },
    )
    .unwrap();
    std::fs::write(&a[2], &b.bytes).unwrap();
    println!("{:#x?}", b.map);
    for s in &b.plan.sandboxes {
        println!("{} {:x?}", s.name, s.ram);
    }
}
