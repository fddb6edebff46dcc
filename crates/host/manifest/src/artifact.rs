//! Files that a manifest names: paths from its folder, and artifacts.

use std::path::{Component, Path, PathBuf};

/// How manifests mark an artifact.
pub const PREFIX: &str = "artifact:";

/// Environment variable with the folder of artifacts.
pub const VARIABLE: &str = "BULKHEAD_ARTIFACTS";

/// The source tree's root: the nearest folder upwards with a workspace manifest.
#[must_use]
pub fn root(from: &Path) -> Option<PathBuf> {
    let from = std::path::absolute(from).ok()?;
    from.ancestors().skip(1).find(|folder| folder.join("Cargo.toml").is_file()).map(Path::to_owned)
}

/// Folder of artifacts in a source tree.
const FOLDER: &str = "target/artifacts";

/// Folders that belong to this command: those of its installation, or of the source tree that it was built in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// It is `PREFIX/bin/bulkhead`, where `make install` put it.
    Installed(PathBuf),
    /// It is `TREE/target/release/bulkhead`.
    Tree(PathBuf),
}

impl Home {
    /// Returns the home of the running command; none if it lies elsewhere.
    #[must_use]
    pub fn find() -> Option<Self> {
        let exe = std::env::current_exe().ok()?;
        Self::around(&exe)
    }

    /// Returns the home of a command by its place. A link to it has been followed.
    fn around(exe: &Path) -> Option<Self> {
        let installed = exe.ancestors().nth(2).filter(|prefix| prefix.join(INSTALLED).is_dir());
        let tree = || exe.ancestors().nth(3).filter(|tree| tree.join("Cargo.toml").is_file());
        let installed = installed.map(|prefix| Self::Installed(prefix.to_owned()));
        installed.or_else(|| tree().map(|tree| Self::Tree(tree.to_owned())))
    }

    /// Returns the folder of artifacts.
    #[must_use]
    pub fn artifacts(&self) -> PathBuf {
        match self {
            Self::Installed(prefix) => prefix.join(INSTALLED),
            Self::Tree(tree) => tree.join(FOLDER),
        }
    }

    /// Returns the folder that has `machines`, and in an installation the SDKs.
    #[must_use]
    pub fn shared(&self) -> PathBuf {
        match self {
            Self::Installed(prefix) => prefix.join(SHARED),
            Self::Tree(tree) => tree.clone(),
        }
    }
}

/// Folder of artifacts in an installation.
const INSTALLED: &str = "lib/bulkhead/artifacts";

/// Folder of all else in an installation.
const SHARED: &str = "share/bulkhead";

/// Folder of artifacts if the caller names none. It is in the source tree around the manifest. For a manifest outside
/// of any source tree, it is in this command's installation, or in the tree that it was built from.
#[must_use]
pub fn folder(manifest: &Path) -> PathBuf {
    if let Some(folder) = std::env::var_os(VARIABLE) {
        return folder.into();
    }
    let near = root(manifest).map(|root| root.join(FOLDER));
    let own = Home::find().map(|home| home.artifacts());
    let there = near.iter().chain(&own).find(|folder| folder.is_dir());
    there.cloned().or(near).unwrap_or_else(|| FOLDER.into())
}

/// The description of a machine in `machines/` of the source tree around the manifest, else of this command's
/// installation or tree.
#[must_use]
pub fn described(manifest: &Path, machine: &str) -> PathBuf {
    let file = Path::new("machines").join(machine).with_extension("toml");
    let own = Home::find().map(|home| home.shared());
    let mut trees = root(manifest).into_iter().chain(own).map(|tree| tree.join(&file));
    trees.find(|path| path.is_file()).unwrap_or(file)
}

/// A path from a folder, without `.` and `..` where they can be resolved by
/// their text, so that messages stay short.
#[must_use]
pub fn join(folder: &Path, path: &str) -> PathBuf {
    let mut joined = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(joined.components().next_back(), Some(Component::Normal(_))) =>
            {
                joined.pop();
            }
            part => joined.push(part),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_finds_its_home() {
        let folder = std::env::temp_dir().join(format!("bulkhead-home-{}", std::process::id()));
        let (prefix, tree) = (folder.join("usr"), folder.join("tree"));
        std::fs::create_dir_all(prefix.join(INSTALLED)).unwrap();
        std::fs::create_dir_all(&tree).unwrap();
        std::fs::write(tree.join("Cargo.toml"), "").unwrap();
        let installed = Home::around(&prefix.join("bin/bulkhead")).unwrap();
        assert_eq!(installed.artifacts(), prefix.join("lib/bulkhead/artifacts"));
        assert_eq!(installed.shared(), prefix.join("share/bulkhead"));
        let built = Home::around(&tree.join("target/release/bulkhead")).unwrap();
        assert_eq!(built.artifacts(), tree.join("target/artifacts"));
        assert_eq!(built.shared(), tree);
        assert_eq!(Home::around(&folder.join("elsewhere/bulkhead")), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn paths_are_joined_by_their_text() {
        let joined = |path| join(Path::new("systems"), path);
        assert_eq!(joined("../machines/q.toml"), Path::new("machines/q.toml"));
        assert_eq!(joined("./a"), Path::new("systems/a"));
        assert_eq!(joined("../../a"), Path::new("../a"));
        assert_eq!(joined("/abs"), Path::new("/abs"));
    }
}
