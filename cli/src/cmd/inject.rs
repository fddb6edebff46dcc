//! `bulkhead inject`: campaigns of faults.

use super::ManifestArguments;
use crate::campaign_picture;
use crate::output::{self, Form};
use bulkhead_inject::{
    Campaign, Error, Golden, Judge, Kind, Row, Shard, Store, System, run as one, table,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Strike faults, one a run, in deterministic virtual time, and class what comes of each. Exit 1 if one harmed another
/// sandbox; faults in monitors are reported apart.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    campaign: CampaignArguments,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print the table of a database, and the runs in which another sandbox was harmed.
    Show(ShowArguments),
    /// Make one database of those of shards.
    Merge(MergeArguments),
}

#[derive(clap::Args)]
struct CampaignArguments {
    /// The manifest.
    #[arg(value_name = "MANIFEST", required = true)]
    manifest: Option<PathBuf>,
    /// Folder of `artifact:NAME` files [default: as for `bulkhead run`].
    #[arg(long, value_name = "FOLDER")]
    artifacts: Option<PathBuf>,
    /// Faults of all shards together.
    #[arg(long, value_name = "N", default_value_t = 100)]
    faults: u64,
    /// Draws the faults.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The sandbox that they strike [default: the first one with a watchdog, or the first one].
    #[arg(long, value_name = "SANDBOX")]
    target: Option<String>,
    /// Kinds of faults, with commas between them [default: all that have a place in the sandbox].
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = kind)]
    kinds: Vec<Kind>,
    /// A part of the campaign, such as 3/64.
    #[arg(long, value_name = "PART/OF", default_value = "1/1")]
    shard: Shard,
    /// Runs side by side [default: as many as the machine has cores].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// The database; faults that it has already are not struck again [default: target/run/NAME-faults.db].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the plot by kind and place.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Strike one fault again and tell all about it.
    #[arg(long, value_name = "FAULT", conflicts_with_all = ["shard", "output", "svg", "jobs"])]
    repeat: Option<u64>,
    /// QEMU's plugin [default: plugin.so among the artifacts].
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
}

#[derive(clap::Args)]
struct ShowArguments {
    /// The database.
    file: PathBuf,
    /// Form of the result: in JSON it is each fault.
    #[arg(long, value_enum, default_value_t = Form::Human)]
    format: Form,
    /// Write the plot by kind and place.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(clap::Args)]
struct MergeArguments {
    /// Databases of shards.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The database of all.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

fn kind(name: &str) -> Result<Kind, String> {
    let all: Vec<&str> = bulkhead_inject::KINDS.iter().map(|(_, name)| *name).collect();
    Kind::named(name).ok_or_else(|| format!("no such kind; there are {}", all.join(", ")))
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.command {
        None => return campaign(&arguments.campaign),
        Some(Command::Show(show)) => {
            let tell = |store: Store| tell(&store, show.svg.as_deref(), show.format);
            Store::existing(&show.file).and_then(tell)
        }
        Some(Command::Merge(merge)) => {
            let merged = Store::merge(&merge.output, &merge.files);
            merged.map(|rows| {
                output::result(&format!("{rows} faults in {}\n", merge.output.display()));
                true
            })
        }
    };
    end(done)
}

fn end(done: Result<bool, Error>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => output::fail(&error.to_string()),
    }
}

fn campaign(arguments: &CampaignArguments) -> ExitCode {
    let manifest = ManifestArguments {
        manifest: arguments.manifest.clone().unwrap_or_default(),
        artifacts: arguments.artifacts.clone(),
        arch: "x86-64".into(),
    };
    let checked = match manifest.load(false) {
        Ok(checked) => checked,
        Err(findings) => {
            super::show(&findings);
            return ExitCode::FAILURE;
        }
    };
    let artifacts = manifest.folder();
    let plugin = arguments.plugin.clone().unwrap_or_else(|| artifacts.join("plugin.so"));
    let name = format!("{}-faults", checked.system.name);
    let system = System::new(&checked, &artifacts, plugin, arguments.target.as_deref());
    end(system.and_then(|system| {
        // Shards run side by side.
        let (folder, _lock) = super::run::free_folder(&name).map_err(Error::Other)?;
        output::complain("note: the run without a fault comes first");
        let golden = Golden::new(&system, &folder)?;
        let campaign = Campaign {
            system: &system,
            golden: &golden,
            seed: arguments.seed,
            kinds: arguments.kinds.clone(),
            faults: arguments.faults,
            shard: arguments.shard,
            jobs: arguments.jobs.unwrap_or_else(cores),
        };
        match arguments.repeat {
            Some(id) => again(&campaign, id, &folder),
            None => {
                let file = PathBuf::from(format!("target/run/{name}.db"));
                let file = arguments.output.as_ref().unwrap_or(&file);
                strike(&campaign, file, &folder, arguments.svg.as_deref())
            }
        }
    }))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Says where the campaign strikes and what it watches.
fn introduce(campaign: &Campaign) {
    let (guests, others) = campaign.golden.steady_pages();
    output::complain(&format!(
        "faults strike {}; {guests} pages of other sandboxes and {others} of monitors and tables are watched, byte by byte",
        campaign.system.struck().name
    ));
}

fn strike(
    campaign: &Campaign,
    file: &Path,
    folder: &Path,
    svg: Option<&Path>,
) -> Result<bool, Error> {
    introduce(campaign);
    let store = Store::open(file, &campaign.facts())?;
    let before = store.known()?.len();
    let (begun, mut done) = (Instant::now(), 0u64);
    campaign.run(&store, folder, |row| {
        done += 1;
        if row.class == "harm" || done % 100 == 0 {
            let rate = done as f64 * 60.0 / begun.elapsed().as_secs_f64();
            let harm = if row.harm.is_empty() { "" } else { ": harm, " };
            let (id, kind, what) = (row.id, &row.kind, &row.harm);
            let faults = format!("{done} faults, {rate:.0} a minute");
            output::complain(&format!("{faults}; fault {id}, {kind}{harm}{what}"));
        }
    })?;
    if before > 0 {
        output::complain(&format!("{before} faults were in {} already", file.display()));
    }
    tell(&store, svg, Form::Human)
}

/// Prints what a database has. True: no fault in a guest has harmed another sandbox.
fn tell(store: &Store, svg: Option<&Path>, format: Form) -> Result<bool, Error> {
    let rows = store.rows()?;
    let human = format == Form::Human;
    match format {
        Form::Human => output::result(&table(&rows)),
        Form::Json => {
            let all: Vec<Value> = rows.iter().map(as_json).collect();
            output::json(json!({ "version": 1, "faults": all }));
        }
    }
    if let Some(file) = svg {
        let written = std::fs::write(file, campaign_picture::draw(&rows));
        written.map_err(|error| Error::Other(format!("{}: {error}", file.display())))?;
    }
    let harm = |apart| rows.iter().filter(move |row| row.class == "harm" && row.apart == apart);
    for row in harm(false).chain(harm(true)).filter(|_| human) {
        output::result(&format!(
            "fault {}: {} ({}, {}) at instruction {}: {}\n",
            row.id, row.kind, row.place, row.detail, row.instant, row.harm
        ));
    }
    let (guests, monitors) = (harm(false).count(), harm(true).count());
    if human {
        output::result(&format!(
            "{} faults: {guests} of guests and {monitors} of monitors harmed another sandbox\n",
            rows.len()
        ));
    }
    Ok(guests == 0)
}

/// Strikes one fault of a campaign again.
fn again(campaign: &Campaign, id: u64, folder: &Path) -> Result<bool, Error> {
    let fault = campaign.fault(id);
    let row = one::run(campaign.system, campaign.golden, &fault, Judge::default(), folder)?;
    output::result(&told(&row));
    Ok(row.class != "harm" || row.apart)
}

/// A fault for programs.
fn as_json(row: &Row) -> Value {
    json!({
        "id": row.id, "kind": row.kind, "sandbox": row.sandbox, "core": row.core, "instant": row.instant,
        "place": row.place, "detail": row.detail, "class": row.class, "found_by": row.caught_by,
        "found_ns": row.after_ns, "right_ns": row.right_ns, "harm": row.harm, "in_monitor": row.apart,
    })
}

fn told(row: &Row) -> String {
    let ns = |ns: Option<u64>| ns.map_or("-".into(), |ns| format!("{ns} ns"));
    let or = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    format!(
        "fault {}: {}\n  struck       {} core {} at instruction {}\n  place        {}: {}\n  class        {}\n  \
         found by     {}, after {}\n  right again  after {}\n  harm         {}\n",
        row.id,
        row.kind,
        row.sandbox,
        row.core,
        row.instant,
        row.place,
        row.detail,
        row.class,
        or(&row.caught_by),
        ns(row.after_ns),
        ns(row.right_ns),
        or(&row.harm)
    )
}
