//! The command as its users see it: exit status, streams, forms of the report.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn bulkhead(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bulkhead"))
        .args(arguments)
        .current_dir(ROOT)
        .env_remove("BULKHEAD_ARTIFACTS")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

const DEMO: &str = "systems/demo.toml";
const GOOD: &str = "tests/manifests/good.toml";
const SEVERED: &str = "tests/manifests/severed.toml";
const BAD: &str = "tests/manifests/bad/core-twice.toml";

#[test]
fn a_right_manifest_is_said_to_be_so() {
    let output = bulkhead(&["check", DEMO, "--skip-files"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        text(&output.stdout),
        "systems/demo.toml: ok (5 sandboxes, 15 programs, 3 channels on qemu-q35)\n"
    );
    // Its rogue is to be caught again and again.
    let remarks = text(&output.stderr);
    let limitless = |line: &str| line.contains("is restarted at each failure, however often");
    assert!(
        remarks.contains(": `rogue` is restarted") && remarks.lines().all(limitless),
        "{remarks}"
    );
    let output = bulkhead(&["check", SEVERED, "--skip-files"]);
    assert_eq!(output.status.code(), Some(0));
    let says = "bulkhead: tests/manifests/severed.toml:64: `ward` can be stopped by `guard` in the middle of a call, and \
                then `keeper` never answers again: it is passive; what helps is a priority above 130 for `keeper` and \
                a `longest` at the endpoint\n";
    assert_eq!(text(&output.stderr), says);
    let output = bulkhead(&["check", SCHED, "--skip-files"]);
    let says = "tests/manifests/sched.toml: ok (2 sandboxes, 7 programs, 0 channels on qemu-q35)\n";
    assert_eq!(text(&output.stdout), says);
}

#[test]
fn findings_go_to_standard_error_without_colours() {
    let output = bulkhead(&["check", BAD, "--skip-files"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let report = text(&output.stderr);
    assert!(report.contains("error[core-twice]: core 1 belongs to `one` and to `two`"), "{report}");
    assert!(report.contains(" --> tests/manifests/bad/core-twice.toml:15:10"), "{report}");
    assert!(!report.contains('\x1b'), "{report}");
}

#[test]
fn json_has_every_finding_with_its_place() {
    let output = bulkhead(&["check", BAD, "--skip-files", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    assert_eq!(report["version"], 1);
    assert_eq!(report["errors"], 2);
    let first = &report["diagnostics"][0];
    assert_eq!(first["rule"], "core-twice");
    assert_eq!(first["file"], BAD);
    assert_eq!((&first["line"], &first["column"]), (&15.into(), &10.into()));
    assert_eq!(first["related"][0]["line"], 9);

    let report = json(&bulkhead(&["check", DEMO, "--skip-files", "--format", "json"]));
    assert_eq!(report["errors"], 0);
}

#[test]
fn sarif_names_its_rules() {
    let output = bulkhead(&["check", BAD, "--skip-files", "--format", "sarif"]);
    assert_eq!(output.status.code(), Some(1));
    let log = json(&output);
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    assert_eq!(run["tool"]["driver"]["rules"][0]["id"], "core-twice");
    let place = &run["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], BAD);
    assert_eq!(place["region"]["startLine"], 15);
}

#[test]
fn a_missing_manifest_is_an_error_not_a_panic() {
    let output = bulkhead(&["check", "no-such.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot read no-such.toml"));
}

#[test]
fn a_wrong_command_line_has_a_status_of_its_own() {
    assert_eq!(bulkhead(&["chekc"]).status.code(), Some(2));
    assert_eq!(bulkhead(&["check"]).status.code(), Some(2));
    // A disc boots a machine, which a running Linux has booted already, with all cores that it has.
    for other in [&["--cores", "2"][..], &["--iso", "--under-linux"]] {
        let all = [&["build", GOOD, "-o", "no-file"][..], other].concat();
        assert_eq!(bulkhead(&all).status.code(), Some(2), "{other:?}");
    }
}

/// `BLESS=1` writes the table anew.
#[test]
fn a_plan_has_everything() {
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plan.svg");
    let output = bulkhead(&["plan", GOOD, "--skip-files", "--svg", picture.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected = PathBuf::from(ROOT).join("tests/manifests/good.plan.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&expected, &output.stdout).unwrap();
    }
    assert_eq!(text(&output.stdout), std::fs::read_to_string(expected).unwrap());

    let picture = std::fs::read_to_string(picture).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    for name in ["ground", "telemetry", "uart1", "loop", "faults", "samples", "received"] {
        assert!(picture.contains(name), "{name} is not in the picture");
    }
    assert!(!picture.contains("NaN"));
}

#[test]
fn a_plan_says_how_both_ends_of_a_devices_channel_are_woken() {
    let bench = PathBuf::from(ROOT).join("systems/bench/tcp.toml");
    let polled = std::fs::read_to_string(bench).unwrap();
    let machine = format!("{ROOT}/machines/");
    let rung = polled.replace("../../machines/", &machine).replace("poll", "doorbell");
    let manifest = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rung.toml");
    std::fs::write(&manifest, rung).unwrap();
    let output = bulkhead(&["plan", manifest.to_str().unwrap(), "--skip-files"]);
    let plan = text(&output.stdout);
    let row = |region: &str| {
        let row = plan.lines().find(|line| line.trim_start().starts_with(region));
        let cells = row.unwrap_or_default().split("  ").map(str::trim);
        let cells: Vec<&str> = cells.filter(|cell| !cell.is_empty()).collect();
        [cells[1], cells[cells.len() - 1]].map(str::to_owned)
    };
    assert_eq!(row("lan tx"), ["virtio, a copy in one, two", "doorbell, port 0x640"], "{plan}");
    assert_eq!(row("lan rx"), ["virtio", "port 0x640"], "{plan}");
    assert_eq!(row("back tx")[1], "doorbell");
    assert_eq!(row("back rx"), ["receipts", "port 0x641"]);
}

/// The lines of an explanation after its first, without their labels.
fn explained(sandbox: &str, thing: &[&str]) -> Vec<String> {
    let output = bulkhead(&[&["explain", "--skip-files", GOOD, sandbox], thing].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    lines.lines().skip(1).map(|line| line[9..].to_owned()).collect()
}

/// The line of a text in a file.
fn line_of(file: &str, wanted: &str) -> usize {
    let text = std::fs::read_to_string(PathBuf::from(ROOT).join(file)).unwrap();
    text.lines().position(|line| line.contains(wanted)).unwrap() + 1
}

#[test]
fn things_are_explained() {
    let [ground, flight] = ["ground", "flight"]
        .map(|name| format!("{GOOD}:{}", line_of(GOOD, &format!("name = \"{name}\"")) - 1));
    let grants = format!("{GOOD}:{}", line_of(GOOD, "\"uart1\""));
    let taken = format!("take it from ground at {grants}");
    let said = |sandbox, thing: &[&str], line: usize| explained(sandbox, thing)[line].clone();
    let (whose, why, gets, grant) = (0, 1, 3, 4);

    assert_eq!(
        said("flight", &["port", "0x2f8"], whose),
        "ground's device `uart1` (class uart16550)"
    );
    assert_eq!(said("flight", &["port", "0x2f8"], why), format!("{grants} grants it"));
    assert_eq!(said("flight", &["port", "0x2f8"], grant), taken);
    assert_eq!(said("ground", &["port", "0x2f8"], grant), "it has that right");
    assert_eq!(said("flight", &["pci:class:0108"], grant), taken);
    assert_eq!(said("flight", &["0xfe800000"], grant), taken);
    let function = "ground's registers of PCI function 01:00.0 (8086:10d3)";
    assert_eq!(said("flight", &["0xfe800000"], whose), function);
    let wanted = format!("{flight}: devices = [\"pci:00:1f.2\"]");
    assert_eq!(said("flight", &["port", "0xd040"], grant), wanted);
    assert_eq!(said("flight", &["irq", "4"], grant), format!("{flight}: devices = [\"uart0\"]"));
    assert_eq!(said("flight", &["0xd1000000"], grant), format!("{flight}: observe = [\"ground\"]"));
    assert_eq!(said("ground", &["0xd1040000"], gets), "reads");
    let host = format!("its RAM, by `memory` at {flight}; host-physical 0x100001000");
    assert_eq!(said("flight", &["0x1000"], why), host);
    let only = |who: &str| format!("reads only: {who}");
    let (messages, receipts) =
        ("messages are written by `from`", "receipts of messages are written by `to`");
    assert_eq!(said("ground", &["0xd2401000"], gets), only(messages));
    assert_eq!(said("flight", &["0xd2411000"], gets), only(receipts));
    assert_eq!(said("control", &["0xd2441000"], gets), only("a channel is written by `from`"));
    let role = format!("{GOOD}:{}", line_of(GOOD, "[[role]]"));
    let own = "channel rudder tx's, by role pilot";
    assert_eq!(said("flight", &["0xd2000000"], whose), own);
    let takes = format!("{role}: it takes the role over when its holder fails, or gives it");
    assert_eq!(said("flight", &["0xd2000000"], grant), takes);
    assert_eq!(said("flight", &["0xd0002000"], gets), "reads");
    let states = "channel telemetry's states of the peers";
    assert_eq!(said("ground", &["0xd2400000"], whose), states);
    assert_eq!(said("ground", &["0xd0802000"], whose), "channel orders's registers of its end");
    assert_eq!(said("ground", &["0xd243f000"], whose), "channel telemetry's window");
    assert_eq!(said("porter", &["pci:00:03.0"], whose), "role carrier's");
    assert_eq!(
        said("porter", &["0xc060000000"], gets),
        "it while it has the role, and nothing else"
    );
    let named = said("spare", &["pci:00:03.0"], grant);
    assert!(named.ends_with(": name `spare` in `holders`"), "{named}");
    let nobody = "nothing in a manifest allows it: its DMA reads and writes any memory";
    assert_eq!(said("ground", &["fw_cfg"], grant), nobody);
    assert_eq!(said("ground", &["pci:00:02.0"], gets), "it is shown, but cannot be written");
    let never = "nothing in a manifest allows it: it resets the machine";
    assert_eq!(said("ground", &["port", "0xcf9"], grant), never);
    let msr = "reads without an exit; writes are denied with #GP and a record";
    assert_eq!(said("flight", &["msr", "0x10"], gets), msr);
    assert!(said("ground", &["0xc0100000"], grant).starts_with("it has"), "{ground}");
    // The machine's own device has no owner.
    let machine = said("ground", &["0xb0100000"], grant);
    assert!(machine.starts_with("nothing"), "{machine}");
}

#[test]
fn what_cannot_be_explained_is_an_error() {
    for (sandbox, thing, why) in [
        ("nobody", "uart1", "there is no sandbox `nobody`; there is ground, flight"),
        ("ground", "uart9", "machine `qemu-q35` has no device `uart9`"),
        ("ground", "pci:1af4:1042", "`pci:1af4:1042` fits pci:00:03.0, pci:00:04.0"),
        ("ground", "pci:ff:00.0", "machine `qemu-q35` has no function `pci:ff:00.0`"),
        ("ground", "0xwhat", "`0xwhat` is no address"),
    ] {
        let output = bulkhead(&["explain", "--skip-files", GOOD, sandbox, thing]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
    assert_eq!(bulkhead(&["explain", GOOD, "ground"]).status.code(), Some(2));
}

#[test]
fn a_picture_that_cannot_be_written_is_an_error() {
    let output = bulkhead(&["plan", GOOD, "--skip-files", "--svg", "/no/such/folder/plan.svg"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot write /no/such/folder/plan.svg"));
}

const SCHED: &str = "tests/manifests/sched.toml";

/// `BLESS=1` writes the tables anew.
#[test]
fn a_schedule_is_judged_and_drawn() {
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sched.svg");
    let output = bulkhead(&["sched", SCHED, "--skip-files", "--svg", picture.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected = PathBuf::from(ROOT).join("tests/manifests/sched.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&expected, &output.stdout).unwrap();
    }
    assert_eq!(text(&output.stdout), std::fs::read_to_string(expected).unwrap());

    let picture = std::fs::read_to_string(picture).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    for name in ["quest, core 1", "vcpu0", "crowded, core 2", "100 ms", "requester's"] {
        assert!(picture.contains(name), "{name} is not in the picture");
    }
    // The sound's first three periods end without it.
    assert_eq!(picture.matches("#cc0000").count(), 3);
}

/// The remarks below the tables are those of the book.
#[test]
fn what_a_schedule_counts_and_what_not_is_said_and_documented() {
    const REMARKS: &str = "tests/manifests/sched-remarks.toml";
    let output = bulkhead(&["sched", REMARKS, "--skip-files"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected = PathBuf::from(ROOT).join("tests/manifests/sched-remarks.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&expected, &output.stdout).unwrap();
    }
    assert_eq!(text(&output.stdout), std::fs::read_to_string(expected).unwrap());
    let book = std::fs::read_to_string(PathBuf::from(ROOT).join("docs/manifest.md")).unwrap();
    let said = text(&output.stdout);
    for kind in ["counted: ", "not counted: ", "not analysed: "] {
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with(kind)).collect();
        assert!(!lines.is_empty(), "no line begins with {kind}");
        lines.iter().for_each(|line| assert!(book.contains(line), "not in the book: {line}"));
    }
    // A wait, or an interrupt, that is in no sum is never in time.
    for name in ["asker", "peer"] {
        let rows = said.lines().filter(|line| line.trim_start().starts_with(name));
        rows.for_each(|row| assert!(!row.trim_end().ends_with("in time"), "{row}"));
    }
    let report = json(&bulkhead(&["sched", REMARKS, "--skip-files", "--format", "json"]));
    let [alone, linked] = [0, 1].map(|n| &report["sandboxes"][n]);
    // 200 and 50 in a second, and one more of each right.
    assert_eq!((&alone["doorbells_per_second"], &alone["doorbell_ns"]), (&252.into(), &900.into()));
    assert_eq!(
        (&alone["run_time_channels_counted"], &linked["run_time_channels_counted"]),
        (&true.into(), &false.into())
    );
}

#[test]
fn a_schedule_as_json() {
    let arguments = ["sched", SCHED, "--skip-files", "--format", "json", "--duration", "10ms"];
    let report = json(&bulkhead(&arguments));
    assert_eq!((&report["version"], &report["system"]), (&1.into(), &"sched".into()));
    let [quest, crowded] = [0, 1].map(|n| &report["sandboxes"][n]);
    assert_eq!(quest["admitted"], true);
    assert_eq!(quest["sum_percent"], 72.8445);
    assert_eq!(quest["simulated_ns"], 10_000_000);
    assert_eq!(quest["contexts"][1]["response_ns"], 33_252_083);
    assert_eq!(crowded["overcommitted_percent"], 10.64409);
    assert_eq!(crowded["contexts"][0]["blocked_ns"], 50_000);
    let admits: Vec<bool> =
        (0..3).map(|n| crowded["tests"][n]["admits"].as_bool().unwrap()).collect();
    assert_eq!(admits, [false, false, true]);
}

#[test]
fn a_schedule_that_is_not_admitted_is_shown_and_fails() {
    let bad = "tests/manifests/bad/admission.toml";
    let output = bulkhead(&["sched", bad, "--skip-files"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("c can come 204 us late or more"));
    assert!(output.stderr.is_empty());
    assert_eq!(bulkhead(&["check", bad, "--skip-files"]).status.code(), Some(1));
}

#[test]
fn what_has_no_schedule_is_an_error() {
    let output = bulkhead(&["sched", BAD, "--skip-files"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("core-twice"));
    let manifest = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-kernel.toml");
    let machine = PathBuf::from(ROOT).join("machines/qemu-q35.toml");
    let lines = format!(
        "[system]\nname = \"bare\"\nmachine = \"{}\"\n[[sandbox]]\nname = \"one\"\n\
         guest = {{ kind = \"bare\", program = \"p\" }}\ncores = [0]\nmemory = \"16 MiB\"\n",
        machine.display()
    );
    std::fs::write(&manifest, lines).unwrap();
    let output = bulkhead(&["sched", manifest.to_str().unwrap(), "--skip-files"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no sandbox of `bare` runs a kernel"));
    for duration in ["0 ms", "soon", "5"] {
        let output = bulkhead(&["sched", SCHED, "--duration", duration]);
        assert_eq!(output.status.code(), Some(2), "{duration}");
    }
}

#[test]
fn a_part_needs_a_bay() {
    let part = format!("{}/part.toml", env!("CARGO_TARGET_TMPDIR"));
    let text_of =
        "[part]\nname = \"x\"\nguest = { kind = \"bare\", program = \"x\" }\nmemory = \"4 MiB\"\n";
    std::fs::write(&part, text_of).unwrap();
    let output = bulkhead(&["check", SCHED, "--part", &part]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(told.contains("error[part-room]: no bay takes `x`"), "{told}");
    assert!(told.contains("guest = { kind = \"vacant\" }"), "{told}");
}

#[test]
fn a_system_without_monitors_is_said_to_be_one() {
    const PING: &str = "tests/multikernel/ping.toml";
    let told = "there are no monitors: each kernel can reach all memory, devices and cores";
    let output = bulkhead(&["check", PING, "--skip-files"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains(told), "{}", text(&output.stderr));
    let output = bulkhead(&["plan", PING, "--skip-files"]);
    let plan = text(&output.stdout);
    let told = "kernels  there are no monitors: each can reach all memory, devices and cores";
    assert!(plan.contains(told) && !plan.contains("everything else is denied"), "{plan}");
    // Commands that would answer as if there were monitors.
    for arguments in [&["explain", "--skip-files", PING, "left", "0x0"][..], &["audit", PING]] {
        let output = bulkhead(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}
