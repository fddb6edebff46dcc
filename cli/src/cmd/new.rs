//! `bulkhead new`: a project outside of the source tree. Its files are those of `cli/templates`, with the project's
//! name and the places of the command and the SDK put in.

use crate::output;
use bulkhead_manifest::Home;
use bulkhead_manifest::rules::names::not_plain;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make a project of one's own that builds and runs: manifest, guests, Makefile, test.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folder to make; its last part is the system's name.
    #[arg(value_name = "NAME")]
    project: PathBuf,
    /// The system to begin with; a wrong name lists all.
    #[arg(long, value_name = "TEMPLATE", default_value = "bare")]
    template: String,
}

/// A file: its path in the project, and its text.
type File = (&'static str, &'static str);

/// A system to begin with.
struct Template {
    name: &'static str,
    /// Its sandboxes, in a line.
    about: &'static str,
    /// Folders of guests and programs.
    sources: &'static [&'static str],
    /// Its own files, and those of its language.
    files: &'static [&'static [File]],
    /// A test's look behind the run: a line of a Makefile.
    after: Option<&'static str>,
}

/// Files of a folder of `cli/templates`.
macro_rules! files {
    ($folder:literal: $($path:literal)*) => {
        &[$(($path, include_str!(concat!("../../templates/", $folder, "/", $path)))),*]
    };
}

/// Files of every project.
const COMMON: &[File] = files!("common": ".gitignore" "Makefile" "README.md");

/// Files of a project with guests in Rust. The compiler is pinned with the SDK: another one may warn of other things,
/// or not know its words yet.
const RUST: &[File] = &[
    (".cargo/config.toml", include_str!("../../templates/common/.cargo/config.toml")),
    (".vscode/settings.json", include_str!("../../templates/common/.vscode/settings.json")),
    ("Cargo.toml", include_str!("../../templates/common/Cargo.toml")),
    ("rust-toolchain.toml", include_str!("../../../rust-toolchain.toml")),
];

/// A bare guest of several templates.
const LOGGER: &[File] = files!("bare":
    "guests/logger/Cargo.toml" "guests/logger/build.rs" "guests/logger/src/main.rs");

/// Part of the Makefile where guests are in C.
const GUESTS: &str = include_str!("../../templates/kernel-c/Makefile.guests");

/// Part of `.cargo/config.toml` where crates of others are installed with the SDK.
const VENDOR: &str = include_str!("../../templates/common/vendor.toml");

/// The machine of every template.
const MACHINE: &str = "machines/qemu-q35.toml";

/// Fails if the first Linux' program failed: Linux powers off, however that has ended.
const LINUX_ENDED_WELL: &str = "grep -q 'bulkhead-init: exit code 0' target/run/@NAME@/serial1.log || \
     { echo 'linux: its program failed'; exit 1; }";

/// All templates.
const TEMPLATES: &[Template] = &[
    Template {
        name: "bare",
        about: "two bare guests in Rust, and a channel from one to the other",
        sources: &["guests"],
        files: &[
            RUST,
            LOGGER,
            files!("bare": "system.toml"
                "guests/sensor/Cargo.toml" "guests/sensor/build.rs" "guests/sensor/src/main.rs"),
        ],
        after: None,
    },
    Template {
        name: "linux+bare",
        about: "a bare guest in Rust that measures, and an unmodified Linux that shows it",
        sources: &["guests"],
        files: &[
            RUST,
            files!("linux+bare": "system.toml"
                "guests/sensor/Cargo.toml" "guests/sensor/build.rs" "guests/sensor/src/main.rs"),
        ],
        after: Some(LINUX_ENDED_WELL),
    },
    Template {
        name: "linux-two",
        about: "two unmodified Linuxes, and a network between them",
        sources: &[],
        files: &[files!("linux-two": "system.toml")],
        after: Some(LINUX_ENDED_WELL),
    },
    Template {
        name: "kernel",
        about: "a program of the kernel in Rust, each millisecond, beside a bare guest",
        sources: &["guests", "programs"],
        files: &[
            RUST,
            LOGGER,
            files!("kernel": "system.toml" "programs/control/Cargo.toml"
                "programs/control/build.rs" "programs/control/src/main.rs"),
        ],
        after: None,
    },
    Template {
        name: "driver",
        about: "a driver of a device in a sandbox of its own, and a client in another, both in Rust",
        sources: &["guests", "programs"],
        files: &[
            RUST,
            files!("driver": "system.toml" "programs/driver/Cargo.toml" "programs/driver/build.rs"
                "programs/driver/src/main.rs" "guests/client/Cargo.toml" "guests/client/build.rs"
                "guests/client/src/main.rs"),
        ],
        after: None,
    },
    Template {
        name: "kernel-c",
        about: "a program of the kernel in C, each millisecond, beside a bare guest in C",
        sources: &["guests", "programs"],
        files: &[files!("kernel-c": "system.toml" "guests/hello/main.c" "programs/control/main.c")],
        after: None,
    },
];

impl Template {
    /// Returns all files of a project of it, as the template has them.
    fn files(&self) -> impl Iterator<Item = &File> {
        COMMON.iter().chain(self.files.iter().copied().flatten())
    }

    /// Tells if it has guests in C.
    fn is_c(&self) -> bool {
        self.files().any(|(path, _)| path.ends_with(".c"))
    }

    /// Says in the project's README where its guests are.
    fn guests(&self) -> String {
        match self.sources {
            [] => "Guests are Debian's kernels. `cmdline` in `system.toml` says what each of them does.".into(),
            some => format!("`{}` has the guests. A new one needs an entry in `system.toml`.", some.join("` and `")),
        }
    }
}

/// Places on this machine that a project names.
struct Places {
    command: String,
    sdk: String,
    /// Compiles C.
    cc: String,
    schema: String,
    /// Folder of others' crates; a source tree has none, and cargo fetches them.
    vendor: Option<String>,
    machine: PathBuf,
}

impl Places {
    /// Returns the places in this command's installation, or in its tree.
    fn find() -> Result<Self, String> {
        let command =
            std::env::current_exe().map_err(|e| format!("this command's own path: {e}"))?;
        let home = Home::find().ok_or_else(|| {
            format!(
                "{} is neither in an installation nor in a source tree: there is no SDK beside it; run `make install` \
                 in a source tree",
                command.display()
            )
        })?;
        let shared = home.shared();
        let tree = matches!(home, Home::Tree(_));
        let place = |installed: &str, here: &str| match tree {
            true => shared.join(here),
            false => shared.join(installed),
        };
        let vendor = (!tree).then(|| shared.join("vendor"));
        Ok(Self {
            command: plain(&command)?,
            sdk: plain(&place("sdk/rust", ""))?,
            cc: plain(&place("sdk/c/sdk/c/cc.sh", "sdk/c/cc.sh"))?,
            schema: plain(&place("schema", "docs/schema").join("manifest.schema.json"))?,
            vendor: vendor.as_deref().map(plain).transpose()?,
            machine: shared.join(MACHINE),
        })
    }

    /// Puts the places and the project's name into a text.
    fn fill(&self, text: &str, name: &str, template: &Template) -> String {
        let members: Vec<_> = template.sources.iter().map(|one| format!("\"{one}/*\"")).collect();
        let vendor = self.vendor.iter().map(|folder| VENDOR.replace("@FOLDER@", folder));
        let after = template.after.map(|line| format!("\t@{line}\n"));
        let guests = if template.is_c() { GUESTS } else { "" };
        // The first ones bring marks of the others.
        let values = [
            ("@AFTER@\n", &*after.unwrap_or_default()),
            ("@GUESTS@\n", guests),
            ("@VENDOR@\n", &vendor.collect::<String>()),
            ("@NAME@", name),
            ("@BULKHEAD@", &self.command),
            ("@SDK@", self.sdk.trim_end_matches('/')),
            ("@CC@", &self.cc),
            ("@SCHEMA@", &self.schema),
            ("@MEMBERS@", &members.join(", ")),
            ("@SOURCES@", &template.guests()),
        ];
        values.iter().fold(text.to_owned(), |text, (mark, value)| text.replace(mark, value))
    }
}

/// A path as text that means itself in a Makefile, in TOML and to a shell.
fn plain(path: &Path) -> Result<String, String> {
    let letters = |c: char| c.is_ascii_alphanumeric() || "/._-+~,".contains(c);
    match path.to_str().filter(|text| text.chars().all(letters)) {
        Some(text) => Ok(text.to_owned()),
        None => Err(format!(
            "{}: a Makefile cannot name this path; install under one of letters, digits and `/._-+~,` alone",
            path.display()
        )),
    }
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    match make(arguments) {
        Ok(()) => {
            let folder = arguments.project.display();
            output::result(&format!(
                "{folder}: made; now type\n  cd {folder} && make\n  make run\nand `make test` judges a run\n"
            ));
            ExitCode::SUCCESS
        }
        Err(why) => output::fail(&why),
    }
}

fn make(arguments: &Arguments) -> Result<(), String> {
    let folder = &arguments.project;
    let named = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if let Some(why) = not_plain(named) {
        return Err(format!(
            "`{}` is no name for a system: {why}; a name has 1 to 31 of a-z, 0-9 and `-`, a letter first",
            folder.display()
        ));
    }
    let wanted = TEMPLATES.iter().find(|template| template.name == arguments.template);
    let template = wanted.ok_or_else(|| unknown(&arguments.template))?;
    let error = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    let used = match std::fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_some(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
        Err(e) => return Err(error(folder, e)),
    };
    if used {
        return Err(format!(
            "{} is not empty, and nothing in it is written over; give another name",
            folder.display()
        ));
    }
    let places = Places::find()?;
    let machine =
        std::fs::read_to_string(&places.machine).map_err(|e| error(&places.machine, e))?;
    let filled = |(path, text): &File| (*path, places.fill(text, named, template));
    let mut files: Vec<_> = template.files().map(filled).collect();
    files.push((MACHINE, machine));
    let written = |(path, text): (&str, String)| {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(|e| error(parent, e))?;
        std::fs::write(&path, text).map_err(|e| error(&path, e))
    };
    let half = |why| format!("{why}; what was made of {} can be deleted", folder.display());
    files.into_iter().try_for_each(written).map_err(half)
}

/// Says which templates there are.
fn unknown(wrong: &str) -> String {
    let width = TEMPLATES.iter().map(|template| template.name.len()).max().unwrap_or(0);
    let line = |t: &Template| format!("\n  {:width$}  {}", t.name, t.about);
    let all: String = TEMPLATES.iter().map(line).collect();
    format!("there is no template `{wrong}`; there are:{all}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_of_every_template_is_filled() {
        let place = || "/place".to_owned();
        let vendor = Some(place());
        let places = Places {
            command: place(),
            sdk: place(),
            cc: place(),
            schema: place(),
            vendor,
            machine: PathBuf::new(),
        };
        for template in TEMPLATES {
            for (path, text) in template.files() {
                let filled = places.fill(text, "mine", template);
                let mark = filled
                    .split('@')
                    .any(|word| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()));
                assert!(!mark, "{}: {path}:\n{filled}", template.name);
            }
        }
    }

    #[test]
    fn no_path_means_something_else_in_a_makefile() {
        assert!(plain(Path::new("/usr/local/bin/bulkhead-0.1_a")).is_ok());
        for path in ["/a b", "/a@b", "/a$b", "/a#b", "/a\"b", "/a\\b", "/ä"] {
            assert!(plain(Path::new(path)).is_err(), "{path}");
        }
    }
}
