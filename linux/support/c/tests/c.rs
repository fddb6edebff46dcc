//! The header says what the library has; what cannot be done is a number; Python finds it all.

use bulkhead_channel_c::*;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::{null, null_mut};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(HERE).join(path)).expect("a file of this crate")
}

#[test]
fn the_header_has_each_function() {
    let (header, source) = (read("include/bulkhead_channel.h"), read("src/lib.rs"));
    let functions: BTreeSet<_> = source
        .split("extern \"C\" fn ")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('(')?.0))
        .collect();
    let declared: BTreeSet<_> = header
        .lines()
        .filter(|line| line.ends_with(");"))
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .collect();
    assert_eq!((functions.len(), &declared), (11, &functions));
}

#[test]
fn python_has_a_word_for_each_number() {
    let source = read("python/bulkhead_channel.py");
    let own = |(name, ..): &&(&str, i32, &str)| !["WAIT", "APART", "MISFIT"].contains(name);
    for (name, number, _) in ALL.iter().filter(own) {
        let word = format!("{number}: \"{}\"", name.to_lowercase());
        assert!(source.contains(&word), "{word}");
    }
}

#[test]
fn c_and_cpp_take_the_header() {
    for (language, standard) in [("c", "-std=c99"), ("c++", "-std=c++11")] {
        let done = Command::new("gcc")
            .args([
                "-fsyntax-only",
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                standard,
                "-x",
                language,
            ])
            .arg(Path::new(HERE).join("include/bulkhead_channel.h"))
            .arg("-I")
            .arg(Path::new(HERE).join("../../../sdk/include"))
            .output()
            .expect("gcc");
        let said = String::from_utf8_lossy(&done.stderr);
        // A machine may lack C++; then nothing was compiled.
        let missing = language == "c++" && said.contains("cc1plus");
        assert!(done.status.success() || missing, "{said}");
    }
}

#[test]
fn what_cannot_be_done_is_a_number() {
    let (mut sender, mut receiver) = (null_mut(), null_mut());
    let mut buffer = [0u8; 8];
    let at = buffer.as_mut_ptr().cast();
    // SAFETY: null pointers and strings of C's are what these functions take.
    unsafe {
        assert_eq!(bulkhead_sender_open(null(), 0, &raw mut sender), ARGUMENT);
        assert_eq!(bulkhead_sender_open(c"nobody".as_ptr(), 0, null_mut()), ARGUMENT);
        assert_eq!(bulkhead_receiver_open(c"\xff".as_ptr(), &raw mut receiver), ARGUMENT);
        assert_eq!(bulkhead_receiver_open(c"nobody".as_ptr(), &raw mut receiver), OPEN);
        assert!(receiver.is_null());
        let why = CStr::from_ptr(bulkhead_channel_error()).to_string_lossy();
        assert!(why.contains("no channel nobody") || why.contains("No such file"), "{why}");
        assert_eq!(bulkhead_send(null_mut(), at, 8, 0), ARGUMENT);
        assert_eq!(bulkhead_receive(null_mut(), at, 8, 0), ARGUMENT.into());
        assert_eq!(bulkhead_receiver_fd(null_mut()), ARGUMENT);
        assert_eq!(bulkhead_receiver_arm(null_mut()), ARGUMENT);
        assert_eq!((bulkhead_sender_longest(null()), bulkhead_receiver_longest(null())), (0, 0));
        bulkhead_sender_close(null_mut());
        bulkhead_receiver_close(null_mut());
    }
}

/// The library that cargo built beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let folders = test.ancestors().skip(1).take(2);
    let found =
        folders.map(|folder| folder.join("libbulkhead_channel_c.so")).find(|file| file.exists());
    found.expect("cargo builds the library for this test")
}

#[test]
fn python_finds_each_function_and_says_why_it_failed() {
    let script = "import bulkhead_channel as b\n\
        try:\n    b.Receiver('nobody')\n\
        except b.News as news:\n    print(news.what, news)\n";
    let done = Command::new("python3")
        .args(["-c", script])
        .env("PYTHONPATH", Path::new(HERE).join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("BULKHEAD_CHANNEL", library())
        .output();
    let done = match done {
        Ok(done) => done,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: no python3");
            return;
        }
        Err(why) => panic!("{why}"),
    };
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.starts_with("open "), "{said}{}", String::from_utf8_lossy(&done.stderr));
}
