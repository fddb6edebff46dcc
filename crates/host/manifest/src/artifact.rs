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

/// Folder of artifacts if the caller names none. It is in the source tree around the manifest. For a manifest outside
/// of any source tree, it is in the tree that this command was built from.
#[must_use]
pub fn folder(manifest: &Path) -> PathBuf {
    if let Some(folder) = std::env::var_os(VARIABLE) {
        return folder.into();
    }
    let near = root(manifest).map(|root| root.join(FOLDER));
    // TREE/target/release/bulkhead
    let own = std::env::current_exe().ok();
    let own = own.as_deref().and_then(|exe| Some(exe.ancestors().nth(3)?.join(FOLDER)));
    let there = near.iter().chain(&own).find(|folder| folder.is_dir());
    there.cloned().or(near).unwrap_or_else(|| FOLDER.into())
}

/// The description of a machine in `machines/` of the source tree around the manifest, else of the tree that this
/// command was built from.
#[must_use]
pub fn described(manifest: &Path, machine: &str) -> PathBuf {
    let file = Path::new("machines").join(machine).with_extension("toml");
    let own = std::env::current_exe().ok();
    let own = own.as_deref().and_then(|exe| exe.ancestors().nth(3)).map(Path::to_owned);
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
    fn paths_are_joined_by_their_text() {
        let joined = |path| join(Path::new("systems"), path);
        assert_eq!(joined("../machines/q.toml"), Path::new("machines/q.toml"));
        assert_eq!(joined("./a"), Path::new("systems/a"));
        assert_eq!(joined("../../a"), Path::new("../a"));
        assert_eq!(joined("/abs"), Path::new("/abs"));
    }
}
