//! The database of a campaign: a row for each fault, in SQLite. Rows are written one by one, so a campaign that was
//! killed goes on where it was. Files of shards are merged.

use crate::{Result, other};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeSet;
use std::path::Path;

/// A fault and what came of it. All but the last column are equal in each run of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Number of the fault.
    pub id: u64,
    /// Kind.
    pub kind: String,
    /// Kind of the place.
    pub place: String,
    /// The fault is in what confines the guest.
    pub apart: bool,
    /// Name of the struck sandbox.
    pub sandbox: String,
    /// Core of the machine.
    pub core: u64,
    /// Number of the instruction.
    pub instant: u64,
    /// The place itself.
    pub detail: String,
    /// Class.
    pub class: String,
    /// Condition of the first record.
    pub caught_by: String,
    /// Nanoseconds to this record.
    pub after_ns: Option<u64>,
    /// Nanoseconds until the service was right again.
    pub right_ns: Option<u64>,
    /// The harm, in words.
    pub harm: String,
    /// Milliseconds of the host.
    pub wall_ms: u64,
}

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS campaign (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS fault (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, place TEXT NOT NULL, apart INTEGER NOT NULL,
    sandbox TEXT NOT NULL, core INTEGER NOT NULL, instant INTEGER NOT NULL, detail TEXT NOT NULL,
    class TEXT NOT NULL, caught_by TEXT NOT NULL, after_ns INTEGER, right_ns INTEGER,
    harm TEXT NOT NULL, wall_ms INTEGER NOT NULL);";
const COLUMNS: &str = "id, kind, place, apart, sandbox, core, instant, detail, class, caught_by, \
    after_ns, right_ns, harm, wall_ms";

/// An open database.
pub struct Store(Connection);

impl Store {
    /// Opens a file, which is made if it is not there. `facts` say which campaign it is: a file of another one is
    /// refused.
    ///
    /// # Errors
    /// A file that is no database, or another campaign's.
    pub fn open(path: &Path, facts: &[(&str, String)]) -> Result<Self> {
        let connection = Connection::open(path)?;
        // A row that the system had not written yet is drawn again.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch(TABLES)?;
        let store = Self(connection);
        for (name, value) in facts {
            match store.fact(name)? {
                None => {
                    let add = "INSERT INTO campaign (name, value) VALUES (?1, ?2)";
                    store.0.execute(add, params![name, value])?;
                }
                Some(known) if known == *value => {}
                Some(known) => {
                    return other(format!(
                        "{}: it is of another campaign: {name} {known}, not {value}",
                        path.display()
                    ));
                }
            }
        }
        Ok(store)
    }

    /// Opens a file that is there.
    ///
    /// # Errors
    /// It is not, or is no database of a campaign.
    pub fn existing(path: &Path) -> Result<Self> {
        match path.is_file() {
            true => Self::open(path, &[]),
            false => other(format!("{}: no such file", path.display())),
        }
    }

    fn fact(&self, name: &str) -> Result<Option<String>> {
        let find = "SELECT value FROM campaign WHERE name = ?1";
        Ok(self.0.query_row(find, [name], |row| row.get(0)).optional()?)
    }

    /// All that says which campaign it is.
    ///
    /// # Errors
    /// The database.
    pub fn facts(&self) -> Result<Vec<(String, String)>> {
        let mut all = self.0.prepare("SELECT name, value FROM campaign ORDER BY name")?;
        let all = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(all.collect::<rusqlite::Result<_>>()?)
    }

    /// Adds a row; one that is there stays.
    ///
    /// # Errors
    /// The database.
    pub fn add(&self, row: &Row) -> Result<()> {
        let add = format!(
            "INSERT OR IGNORE INTO fault ({COLUMNS}) VALUES \
             (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
        );
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.0.prepare(&add)?.execute(params![
            number(row.id),
            row.kind,
            row.place,
            row.apart,
            row.sandbox,
            number(row.core),
            number(row.instant),
            row.detail,
            row.class,
            row.caught_by,
            row.after_ns.map(number),
            row.right_ns.map(number),
            row.harm,
            number(row.wall_ms),
        ])?;
        Ok(())
    }

    /// Numbers of the faults that are there.
    ///
    /// # Errors
    /// The database.
    pub fn known(&self) -> Result<BTreeSet<u64>> {
        Ok(self.rows()?.into_iter().map(|row| row.id).collect())
    }

    /// All rows, by their numbers.
    ///
    /// # Errors
    /// The database.
    pub fn rows(&self) -> Result<Vec<Row>> {
        let mut all = self.0.prepare(&format!("SELECT {COLUMNS} FROM fault ORDER BY id"))?;
        let all = all.query_map([], |row| {
            let number = |n: usize| row.get::<_, i64>(n).map(|n| n.unsigned_abs());
            let maybe = |n: usize| row.get::<_, Option<i64>>(n).map(|n| n.map(i64::unsigned_abs));
            Ok(Row {
                id: number(0)?,
                kind: row.get(1)?,
                place: row.get(2)?,
                apart: row.get(3)?,
                sandbox: row.get(4)?,
                core: number(5)?,
                instant: number(6)?,
                detail: row.get(7)?,
                class: row.get(8)?,
                caught_by: row.get(9)?,
                after_ns: maybe(10)?,
                right_ns: maybe(11)?,
                harm: row.get(12)?,
                wall_ms: number(13)?,
            })
        })?;
        Ok(all.collect::<rusqlite::Result<_>>()?)
    }

    /// Adds the rows of other files of the campaign; the number of rows that are there then.
    ///
    /// # Errors
    /// A file of another campaign.
    pub fn merge(path: &Path, parts: &[std::path::PathBuf]) -> Result<usize> {
        let mut facts = Vec::new();
        for part in parts {
            let part = Self::existing(part)?;
            let own = part.facts()?;
            let borrowed: Vec<_> = own.iter().map(|(n, v)| (n.as_str(), v.clone())).collect();
            let whole = Self::open(path, &borrowed)?;
            let transaction = whole.0.unchecked_transaction()?;
            part.rows()?.iter().try_for_each(|row| whole.add(row))?;
            transaction.commit()?;
            facts = own;
        }
        match facts.is_empty() {
            true => other("nothing to merge"),
            false => Ok(Self::existing(path)?.rows()?.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u64) -> Row {
        Row {
            id,
            kind: "memory".into(),
            place: "data".into(),
            apart: false,
            sandbox: "flight".into(),
            core: 0,
            instant: 1 << 40,
            detail: "byte 0x10, bit 3".into(),
            class: "recovered".into(),
            caught_by: "failure".into(),
            after_ns: Some(3),
            right_ns: None,
            harm: String::new(),
            wall_ms: 7,
        }
    }

    #[test]
    fn rows_are_kept_once_merged_and_never_mixed() {
        let dir = std::env::temp_dir().join(format!("bulkhead-store-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let at = |name: &str| dir.join(name);
        let facts = |seed: u64| [("seed", seed.to_string())];
        for (name, ids) in [("a", [1, 3]), ("b", [2, 3])] {
            let store = Store::open(&at(name), &facts(1)).expect("a database");
            ids.iter().for_each(|id| store.add(&row(*id)).expect("a row"));
            store.add(&Row { class: "harm".into(), ..row(3) }).expect("a row");
        }
        assert_eq!(Store::merge(&at("all"), &[at("a"), at("b")]).expect("merged"), 3);
        let all = Store::existing(&at("all")).expect("a database").rows().expect("rows");
        assert_eq!(all, [row(1), row(2), row(3)]);
        assert!(Store::open(&at("a"), &facts(2)).is_err());
        Store::open(&at("c"), &facts(2)).expect("a database");
        assert!(Store::merge(&at("all"), &[at("c")]).is_err());
        std::fs::remove_dir_all(&dir).expect("the folder");
    }
}
