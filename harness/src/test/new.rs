//! A project outside of the tree: made, built and run as its owner does it. Neither the tree nor a network nor cargo's
//! cache can be read there. Each template passes its own test there. One with a guest that ends badly
//! fails it.

use super::driver::{Bench, Job, tail};
use crate::build;
use crate::program::Program as _;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Templates of the command.
const TEMPLATES: [&str; 6] = ["bare", "linux+bare", "linux-two", "kernel", "driver", "kernel-c"];

/// Longest time of one project's commands.
const SECONDS: u64 = 240;

/// Tests that are no template's.
const OTHERS: [(&str, Look); 6] = [
    ("new/plain-c", plain_c),
    ("new/refused", refused),
    ("new/failing", failing),
    ("new/command", command),
    ("new/readable", readable),
    ("new/uninstall", uninstall),
];

/// Looks at an installation, and says something of it.
type Look = fn(&Installed) -> Result<String, String>;

pub fn jobs() -> Vec<Job> {
    let tests = TEMPLATES.iter().map(|template| format!("new/{template}"));
    let others = OTHERS.iter().map(|(name, _)| (*name).to_owned());
    // One job, because installing takes a while and writes to one folder of the tree.
    vec![Job::new("new", tests.chain(others), 900, all)]
}

fn all(bench: &Bench) {
    let installed = Installed::make();
    let each = |look: &dyn Fn(&Installed) -> Result<String, String>| match &installed {
        Ok(installed) => look(installed),
        Err(why) => Err(why.clone()),
    };
    for template in TEMPLATES {
        bench.result(&format!("new/{template}"), each(&|installed| own_test(installed, template)));
    }
    for (name, look) in OTHERS {
        bench.result(name, each(&look));
    }
}

/// A folder that was there before, empty.
const OTHERS_FOLDER: &str = "src/bulkhead-of-others";

/// An installation, in a folder outside of the tree.
struct Installed {
    folder: PathBuf,
    /// Commands can be typed where neither the tree nor a network is: this machine lets its user have namespaces.
    hides: bool,
}

impl Installed {
    fn make() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("bulkhead-new-{}", std::process::id()));
        let tried = hiding("mount").args(["-t", "tmpfs", "none", "/mnt"]).output();
        let tried = tried.map_err(|e| format!("unshare: {e}"))?;
        let installed = Self { folder, hides: tried.status.success() };
        let others = installed.prefix().join(OTHERS_FOLDER);
        std::fs::create_dir_all(&others).map_err(|e| format!("{}: {e}", others.display()))?;
        let done = installed.script(&[])?;
        if done.status.success() { Ok(installed) } else { Err(words(&done)) }
    }

    fn prefix(&self) -> PathBuf {
        self.folder.join("usr")
    }

    /// Runs the script with the umask of private files.
    fn script(&self, arguments: &[&str]) -> Result<Output, String> {
        let mut script = Command::new("sh");
        script.args(["-c", "umask 077; exec \"$@\"", "sh"]);
        script
            .arg(build::root().join("tools/install.sh"))
            .args(arguments)
            .env("PREFIX", self.prefix())
            .env_remove("DESTDIR")
            .printed()
    }

    /// Says how commands are typed, for a verdict.
    fn remark(&self) -> &'static str {
        match self.hides {
            true => "",
            false => "; the tree was in sight: this machine allows no namespaces",
        }
    }

    /// Types lines in a folder of the installation's where nothing of the tree can be read, and no network is. Without
    /// namespaces both are there, and the verdict says so.
    fn types(&self, lines: &str) -> Result<Output, String> {
        let (folder, tree) = (self.folder.display(), build::root());
        let mut script = "set -e\n".to_owned();
        if self.hides {
            let _ = writeln!(
                script,
                "mount -t tmpfs none {0}\ntest ! -e {0}/Cargo.toml",
                tree.display()
            );
        }
        let _ = write!(script, "cd {folder}\nexport PATH={folder}/usr/bin:$PATH\n{lines}");
        let mut shell = if self.hides { hiding("timeout") } else { Command::new("timeout") };
        shell.arg(SECONDS.to_string()).args(["bash", "-c", &script]).current_dir("/");
        for tree in ["CARGO_TARGET_DIR", "BULKHEAD_ARTIFACTS", "MAKEFLAGS", "MAKELEVEL"] {
            shell.env_remove(tree);
        }
        shell.env("CARGO_HOME", self.folder.join("cargo")).env("CARGO_NET_OFFLINE", "true");
        shell.env("CI", "true").printed()
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A command that runs a program with mounts and networks of its own. A user who is not root is root in there.
fn hiding(program: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net"]);
    if !is_root() {
        command.arg("--map-root-user");
    }
    command.arg(program);
    command
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// All that a command printed, its last lines.
fn words(done: &Output) -> String {
    let both = [&done.stdout[..], &done.stderr[..]].concat();
    format!("{}\n{}", done.status, tail(&String::from_utf8_lossy(&both)))
}

/// A project of the template is built and run by its two commands, and passes its own test.
fn own_test(installed: &Installed, template: &str) -> Result<String, String> {
    let name = format!("my-{}", template.replace('+', "-"));
    let done = installed.types(&format!(
        "bulkhead new {name} --template {template}\ncd {name}\nmake\nmake run\nmake test\n\
         ls target/report.json\n"
    ))?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    match done.status.success() && said.contains("is not disturbed") && !said.contains("BROKEN") {
        true => {
            let held = said.matches("  held ").count() / 2;
            Ok(format!("{held} promises held{}", installed.remark()))
        }
        false => Err(words(&done)),
    }
}

/// Names, folders and templates that cannot be are refused, with what would be right.
fn refused(installed: &Installed) -> Result<String, String> {
    let cases = [
        ("Mine", "bare", "a letter first"),
        ("mine", "bear", "linux+bare"),
        ("used", "bare", "give another name"),
    ];
    for (name, template, expected) in cases {
        let line =
            format!("mkdir -p used\ntouch used/file\nbulkhead new {name} --template {template}\n");
        let done = installed.types(&line)?;
        if done.status.success() || !String::from_utf8_lossy(&done.stderr).contains(expected) {
            return Err(format!("{name} {template}: {}", words(&done)));
        }
        if exists(&installed.folder.join(name).join("Makefile")) {
            return Err(format!("{name} was made"));
        }
    }
    Ok(format!("{} refused", cases.len()))
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// A program in plain C takes two commands, in a folder with its source and a manifest.
fn plain_c(installed: &Installed) -> Result<String, String> {
    let folder = installed.folder.join("plain");
    let copied = std::fs::create_dir_all(&folder).and_then(|()| {
        let tree = build::root();
        std::fs::copy(tree.join("programs/apps/hello.c"), folder.join("hello.c"))?;
        std::fs::copy(tree.join("tests/libc/hello.toml"), folder.join("system.toml"))
    });
    copied.map_err(|e| format!("{}: {e}", folder.display()))?;
    let done = installed.types(
        "cd plain\ncp -r ../usr/share/bulkhead/machines .\n\
             bulkhead-cc app target/hello hello.c\nbulkhead run system.toml\n",
    )?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let root = said.lines().find(|line| line.ends_with("hello, others: 1.414213562373"));
    match root.filter(|_| done.status.success()) {
        Some(line) => Ok(format!("{line}{}", installed.remark())),
        None => Err(words(&done)),
    }
}

/// A guest that ends with another exit code than 0 breaks a promise, and so the project's test fails.
fn failing(installed: &Installed) -> Result<String, String> {
    let done = installed.types(
        "bulkhead new failing --template bare\ncd failing\n\
         sed -i 's/^    0$/    3/' guests/logger/src/main.rs\nmake test\n",
    )?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let broken = said.lines().find(|line| line.contains("BROKEN logger"));
    match broken.filter(|_| !done.status.success()) {
        Some(line) => Ok(line.trim().to_owned()),
        None => Err(words(&done)),
    }
}

/// A command of `[build]` that fails ends `bulkhead run` and `bulkhead build`, with its line; `check` executes none.
fn command(installed: &Installed) -> Result<String, String> {
    let change = "bulkhead new command --template kernel-c\ncd command\n\
                  sed -i '/^run = /s/guests/nothing/' system.toml\n";
    let line = "system.toml:10: `make --silent nothing` failed";
    for command in ["bulkhead run system.toml", "bulkhead build system.toml -o image"] {
        let done = installed.types(&format!("rm -rf command\n{change}{command}\n"))?;
        if done.status.success() || !String::from_utf8_lossy(&done.stderr).contains(line) {
            return Err(format!("{command}: {}", words(&done)));
        }
    }
    let done = installed.types("cd command\nbulkhead check system.toml\n")?;
    let said = String::from_utf8_lossy(&done.stderr);
    match said.contains("by `bulkhead build`") && !said.contains("failed") {
        true => Ok(line.to_owned()),
        false => Err(words(&done)),
    }
}

/// Everyone can read what was installed, whoever's umask it was.
fn readable(installed: &Installed) -> Result<String, String> {
    let mut private = Command::new("find");
    private.arg(installed.prefix()).args(["-mindepth", "1", "!", "-path"]);
    private.arg(installed.prefix().join(OTHERS_FOLDER)).args(["!", "-type", "l"]);
    private.args(["(", "!", "-perm", "-044", "-o", "-type", "d", "!", "-perm", "-055", ")"]);
    let private = private.printed()?;
    match private.status.success() && private.stdout.is_empty() {
        true => Ok("files and folders, with umask 077".to_owned()),
        false => Err(words(&private)),
    }
}

/// Removing leaves what others put there, and nothing else. Folders go where the installation made them.
fn uninstall(installed: &Installed) -> Result<String, String> {
    let prefix = installed.prefix();
    let others = prefix.join("share/bulkhead/own.txt");
    std::fs::write(&others, "").map_err(|e| format!("{}: {e}", others.display()))?;
    let done = installed.script(&["--remove"])?;
    let mut left = Command::new("find");
    let left = left.arg(&prefix).args(["-mindepth", "1", "-printf", "%P\\n"]).printed()?;
    let left = String::from_utf8_lossy(&left.stdout).into_owned();
    let mut left: Vec<&str> = left.lines().collect();
    left.sort_unstable();
    let expected = ["share", "share/bulkhead", "share/bulkhead/own.txt", "src", OTHERS_FOLDER];
    match done.status.success() && left == expected {
        true => Ok("all but what others put there".to_owned()),
        false => Err(format!("{}\nleft:\n{}", words(&done), left.join("\n"))),
    }
}
