fn main() {
    bulkhead_build::program();
}
