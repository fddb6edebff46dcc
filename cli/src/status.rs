//! Exit statuses and environment of all commands: for man pages, and a test compares `docs/commands.md` with them.

/// A promise, a manifest or a work that is not right. clap has 2 for the command line.
pub const FAILURE: u8 = 1;
/// Exit status that shells report for a command that Ctrl-C ended: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Exit statuses and their meanings.
pub const STATUSES: &[(u8, &str)] = &[
    (0, "done, and all that was judged is right"),
    (
        FAILURE,
        "not done, or something is not right: a manifest, a promise of a run, an audit, a schedule, a campaign, a \
         comparison",
    ),
    (2, "the command line is not right"),
    (INTERRUPTED, "Ctrl-C ended a run, or `watch`"),
];

/// Environment variables and their effects.
pub const VARIABLES: &[(&str, &str)] = &[
    ("NO_COLOR", "no colours, if it is not empty and `--color` does not ask for them"),
    ("CI=true", "`run` is the scenario in virtual time, even with a terminal"),
    (
        "BULKHEAD_ARTIFACTS",
        "folder of `artifact:NAME` files, in place of the installation's or the source tree's",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_each_row() {
        let page = include_str!("../../docs/commands.md");
        let statuses =
            STATUSES.iter().map(|(status, meaning)| format!("| {status} | {meaning} |\n"));
        let variables = VARIABLES.iter().map(|(name, effect)| format!("| `{name}` | {effect} |\n"));
        for row in statuses.chain(variables) {
            assert!(page.contains(&row), "docs/commands.md lacks {row}");
        }
    }
}
