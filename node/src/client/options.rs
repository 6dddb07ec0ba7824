//! The command line of the client.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::bulk::BulkCommand;
use super::filter::{RunFilter, WhichRuns};
use super::moment::{DateTime, Pause};
use super::schedule::ScheduleCommand;
use super::upkeep::{Copy, Restore};

/// Where the program is asked.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Where to ask")]
pub(crate) struct At {
    /// Ask at this URL, which has the API below it: http://127.0.0.1:7070. Or `MILLRUN_URL`.
    #[arg(long, value_name = "URL", conflicts_with_all = ["socket", "store"])]
    pub(crate) url: Option<String>,
    /// Ask at this socket. Or `MILLRUN_SOCKET`.
    #[arg(long, value_name = "PATH", conflicts_with = "store")]
    pub(crate) socket: Option<PathBuf>,
    /// Ask the process that has this store, at the socket beside it; if there is none, its file is read and stays as
    /// it is. Or `MILLRUN_STORE`; millrun.redb if nothing says where.
    #[arg(long, value_name = "PATH")]
    pub(crate) store: Option<PathBuf>,
    /// A file with the token to send. Or the token itself in `MILLRUN_TOKEN`.
    #[arg(long, value_name = "PATH")]
    pub(crate) token_file: Option<PathBuf>,
}

/// In which form the answer is written.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "How to write it")]
pub(crate) struct Form {
    /// Print the answer of the API as it is: JSON on one line.
    #[arg(long, conflicts_with = "jsonl")]
    pub(crate) json: bool,
    /// Print one line of JSON for each item of a list.
    #[arg(long)]
    pub(crate) jsonl: bool,
}

/// An instance.
#[derive(Debug, Args)]
pub(crate) struct OfInstance {
    /// The id of the instance.
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// An instance, as it is or as it was.
#[derive(Debug, Args)]
pub(crate) struct Describe {
    #[command(flatten)]
    pub(crate) of: OfInstance,
    #[command(flatten)]
    pub(crate) then: AtEvent,
}

/// A question to an instance.
#[derive(Debug, Args)]
pub(crate) struct QueryOf {
    #[command(flatten)]
    pub(crate) say: Say,
    #[command(flatten)]
    pub(crate) then: AtEvent,
}

/// An event at which a run is looked at.
#[derive(Debug, Args)]
pub(crate) struct AtEvent {
    /// Its latest run as it was behind the event of this number, which millrun history tells: the history up to there is replayed,
    /// and nothing comes of it.
    #[arg(long = "at", value_name = "EVENT")]
    event: Option<u64>,
}

impl AtEvent {
    /// The parameters of a request.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        let event = self.event.map(|event| ("at", event.to_string()));
        event.into_iter().collect()
    }
}

/// Nothing in particular.
#[derive(Debug, Args)]
pub(crate) struct OfProgram {
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Finished runs, the earliest ended first, in place of live instances. A filter finds both, newest first.
    #[arg(long, conflicts_with_all = ["workflow", "status", "outcome", "id_prefix", "since", "until", "ended_since", "ended_until"])]
    pub(crate) finished: bool,
    /// How many, at most.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: u64,
    /// Those behind this id, or this run where finished ones are listed. Where a filter is given, those behind the
    /// cursor of a page, as `next` of the API tells it.
    #[arg(long, value_name = "ID")]
    pub(crate) after: Option<String>,
    /// List again and again, each second, until Ctrl-C.
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) filter: RunFilter,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Print it once, without clearing the screen; also where the output is no terminal.
    #[arg(long)]
    pub(crate) once: bool,
    /// How often it is shown.
    #[arg(long = "every", value_name = "SECONDS", default_value_t = 1)]
    pub(crate) every_s: u16,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
pub(crate) struct History {
    /// The id of the instance, of whose latest run the history is.
    #[arg(required_unless_present = "run")]
    pub(crate) id: Option<String>,
    /// Another run, by its 32 digits.
    #[arg(long, conflicts_with = "id")]
    pub(crate) run: Option<String>,
    /// Show each operation with its time, in place of each event.
    #[arg(long, conflicts_with_all = ["json", "jsonl"])]
    pub(crate) timeline: bool,
    /// How many events, at most.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) limit: u64,
    /// Print all of it as a file that tests replay: lines of JSON.
    #[arg(long, conflicts_with_all = ["json", "jsonl", "timeline", "limit"])]
    pub(crate) export: bool,
    /// With --export, hide these fields of payloads, `card.number` or `**.password`: the kinds of their values stay, so that
    /// the file is still replayed.
    #[arg(long, value_name = "PATH", requires = "export")]
    pub(crate) redact: Vec<String>,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct TraceOptions {
    /// The run, by its 32 digits; the id of an instance, whose latest run is meant; or a durable topic, with a record of it.
    pub(crate) of: String,
    /// The record of the topic: its token, as `millrun records` prints it, or its number.
    pub(crate) record: Option<String>,
    /// The record of the topic that was published with this id.
    #[arg(long, value_name = "ID", conflicts_with = "record")]
    pub(crate) record_id: Option<String>,
    /// One operation of the run, by its number in the history, in place of all of it.
    #[arg(long, value_name = "N", conflicts_with_all = ["record", "record_id"])]
    pub(crate) operation: Option<u32>,
    /// What led to it alone.
    #[arg(long, conflicts_with = "effects")]
    pub(crate) causes: bool,
    /// What came of it alone.
    #[arg(long)]
    pub(crate) effects: bool,
    /// How many links away the walk goes in each direction.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) depth: u64,
    /// How many runs, operations and records are asked for in each direction, at most.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) limit: u64,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// The id of the instance, whose latest run is followed to its end.
    #[arg(required_unless_present_any = ["run", "topic", "all", "workflow", "status", "outcome", "id_prefix"])]
    pub(crate) id: Option<String>,
    /// Another run, by its 32 digits.
    #[arg(long, conflicts_with = "id")]
    pub(crate) run: Option<String>,
    /// A topic that the program exposes (see `millrun topics`), until Ctrl-C.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["id", "run"])]
    pub(crate) topic: Option<String>,
    /// What becomes of all runs, until Ctrl-C: those that start, end, are parked and resumed.
    #[arg(long, help_heading = "Which runs", conflicts_with_all = ["id", "run", "topic"])]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) which: WhichRuns,
    /// Behind the event of this number, or the message of this id.
    #[arg(long, value_name = "ID")]
    pub(crate) after: Option<String>,
    /// End behind this number of events or messages.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) at: At,
    /// Print one line of JSON for each event.
    #[arg(long)]
    pub(crate) jsonl: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StreamOf {
    /// The run, by its 32 digits, or the id of an instance, whose latest run is meant.
    pub(crate) run: String,
    /// The name of the output stream; without it those are listed to which activities have sent.
    pub(crate) name: Option<String>,
    /// Behind the chunk of this id.
    #[arg(long, value_name = "ID", requires = "name")]
    pub(crate) after: Option<String>,
    /// End behind this number of chunks.
    #[arg(long, value_name = "N", requires = "name")]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) at: At,
    /// Print one line of JSON for each chunk, or for each stream.
    #[arg(long)]
    pub(crate) jsonl: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResultOf {
    /// The id of the instance.
    pub(crate) id: String,
    /// Wait so long for its end.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Start {
    /// The workflow, as it is registered: see `millrun catalogue`.
    pub(crate) workflow: String,
    /// The id of the new instance.
    pub(crate) id: String,
    /// The input in JSON; - reads standard input.
    #[arg(default_value = "null")]
    pub(crate) input: String,
    /// What to do when the id is taken.
    #[arg(long, value_enum, default_value_t = OnConflict::Attach)]
    pub(crate) on_conflict: OnConflict,
    /// Begin after so long: 90s, 15m, 2h, 7d or 2w.
    #[arg(long, value_name = "DURATION", conflicts_with = "start_at")]
    pub(crate) delay: Option<Pause>,
    /// Begin then: 2026-11-25, or 2026-11-25T05:30:00 in UTC.
    #[arg(long, value_name = "TIME")]
    pub(crate) start_at: Option<DateTime>,
    /// Try a run that fails again, as often in all.
    #[arg(long, value_name = "TRIES")]
    pub(crate) retry: Option<NonZeroU32>,
    /// The pause before the second try, which doubles before each later one, up to a minute: 1s if it is not said.
    #[arg(long, value_name = "DURATION", requires = "retry")]
    pub(crate) retry_pause: Option<Pause>,
    /// End a run that takes longer, from when it begins: 90s, 15m, 2h, 7d or 2w. Each that goes on from it has that time anew.
    #[arg(long, value_name = "DURATION")]
    pub(crate) run_timeout: Option<Pause>,
    /// End a run when it has taken longer together with all that it goes on in.
    #[arg(long, value_name = "DURATION")]
    pub(crate) chain_timeout: Option<Pause>,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// What to do when an id is taken.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnConflict {
    /// Tell the run that is there.
    Attach,
    /// Refuse it.
    Refuse,
    /// Start again one that has finished, and tell one that has not.
    RestartFinished,
    /// Start again one that has finished without a value, refuse one that has a value, and tell one that runs.
    RestartFailed,
    /// Terminate one that runs, and start another in its place.
    TerminateRunning,
}

#[derive(Debug, Args)]
pub(crate) struct Say {
    /// The id of the instance.
    pub(crate) id: String,
    /// The name of the signal or query.
    pub(crate) name: String,
    /// The value in JSON; - reads standard input.
    #[arg(default_value = "null")]
    pub(crate) value: String,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Update {
    /// The id of the instance.
    pub(crate) id: String,
    /// The name of the update.
    pub(crate) name: String,
    /// The input in JSON; - reads standard input.
    #[arg(default_value = "null")]
    pub(crate) input: String,
    /// The name of the request: asked again under it, the update is performed once. One of its own by default.
    #[arg(long)]
    pub(crate) request: Option<String>,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct End {
    /// The id of the instance.
    pub(crate) id: String,
    /// Why; it stands in the history.
    #[arg(long, default_value = "asked for on the command line")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Reset {
    /// The id of the instance.
    pub(crate) id: String,
    /// The number of the last event that is kept, as `millrun history` prints it.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) to_event: u64,
    /// Tell the run that begins the signals and updates behind that event again.
    #[arg(long)]
    pub(crate) keep_signals: bool,
    /// The run that is meant: if another is the latest by then, nothing is reset.
    #[arg(long)]
    pub(crate) run: Option<String>,
    /// Why; it stands in the history.
    #[arg(long, default_value = "asked for on the command line")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Call {
    /// The operation, as the README of millrun-http has it.
    pub(crate) operation: String,
    /// The id or run in its path, where it has one.
    pub(crate) value: Option<String>,
    /// A parameter, such as limit=10; may be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) query: Vec<String>,
    /// The body; - reads standard input.
    #[arg(long, value_name = "JSON")]
    pub(crate) body: Option<String>,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Signal {
    #[command(flatten)]
    pub(crate) say: Say,
    /// The name of the request: sent again under it, the signal is recorded once.
    #[arg(long)]
    pub(crate) request: Option<String>,
}

/// An entity.
#[derive(Debug, Args)]
pub(crate) struct OfEntity {
    /// The name of the entity, as it is registered: see `millrun catalogue`.
    pub(crate) entity: String,
    /// Its key.
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct CommandEntity {
    #[command(flatten)]
    pub(crate) of: OfEntity,
    /// The name of the command.
    pub(crate) name: String,
    /// The input in JSON; - reads standard input.
    #[arg(default_value = "null")]
    pub(crate) input: String,
    /// The name of the request: asked again under it, the command is performed once. One of its own by default.
    #[arg(long)]
    pub(crate) request: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ReadEntity {
    #[command(flatten)]
    pub(crate) of: OfEntity,
    /// The name of the query.
    pub(crate) name: String,
    /// The question in JSON; - reads standard input.
    #[arg(default_value = "null")]
    pub(crate) question: String,
}

#[derive(Debug, Args)]
pub(crate) struct Entities {
    /// The name of the entity, as it is registered: see `millrun catalogue`.
    pub(crate) entity: String,
    /// Those whose keys begin so.
    #[arg(long, value_name = "PREFIX", default_value = "")]
    pub(crate) prefix: String,
    /// How many, at most.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: u64,
    /// Those behind the cursor of a page, as `next` of the API tells it.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Publish {
    /// The topic: see `millrun topics`.
    pub(crate) topic: String,
    /// The value in JSON; - reads standard input.
    #[arg(default_value = "null")]
    pub(crate) value: String,
    /// Its key: records of one key keep their order.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Its id: published again under it, a durable topic has it once.
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// The whole that it belongs to.
    #[arg(long)]
    pub(crate) correlation: Option<String>,
    /// The format of its payload, for those who read it.
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Records {
    /// The durable topic: see `millrun topics`.
    pub(crate) topic: String,
    /// Where to begin: beginning (unless this is said), now, last:20 for the last 20, a time (2h for so long ago,
    /// 2026-11-25, or 2026-11-25T05:30:00 in UTC), or the token of a record, behind which it goes on.
    #[arg(long, value_name = "PLACE")]
    pub(crate) from: Option<String>,
    /// Those with this key alone.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Also those that come, as they become durable, until Ctrl-C.
    #[arg(long)]
    pub(crate) follow: bool,
    /// How many, at most; 100 unless this is said, and no bound with --follow.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct OfTopic {
    /// The durable topic: see `millrun topics`.
    pub(crate) topic: String,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Args)]
#[group(id = "purged", required = true, multiple = false, args = ["before", "all"])]
pub(crate) struct PurgeTopic {
    #[command(flatten)]
    pub(crate) of: OfTopic,
    /// The records before this one, by its number or its token.
    #[arg(long, value_name = "RECORD")]
    pub(crate) before: Option<String>,
    /// All records that are there now.
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OfSubscription {
    #[command(flatten)]
    pub(crate) of: OfTopic,
    /// The subscription: see `millrun subscriptions TOPIC`.
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseKey {
    #[command(flatten)]
    pub(crate) of: OfTopic,
    /// The subscription: see `millrun subscriptions TOPIC`.
    pub(crate) subscription: String,
    /// The key, as the undelivered record has it.
    pub(crate) key: String,
}

#[derive(Debug, Args)]
#[group(id = "sent_back", required = true, multiple = false, args = ["token", "all"])]
pub(crate) struct SendBack {
    #[command(flatten)]
    pub(crate) of: OfTopic,
    /// The undelivered record: its token, as `millrun records TOPIC` prints it.
    pub(crate) token: Option<String>,
    /// All that are there. Those that were sent back before are not sent again.
    #[arg(long)]
    pub(crate) all: bool,
    /// With --all, those behind this token.
    #[arg(long, value_name = "TOKEN", requires = "all")]
    pub(crate) after: Option<String>,
    /// With --all, how many, at most.
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "all")]
    pub(crate) limit: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Subscriptions {
    /// The durable topic: see `millrun topics`.
    pub(crate) topic: String,
    /// How many, at most.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: u64,
    /// Those behind this name.
    #[arg(long, value_name = "NAME")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) at: At,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// What a program that runs is asked.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// List live instances, finished runs, or the runs that a filter finds.
    List(List),
    /// Describe what an instance does and waits for, or did at an event of its history.
    Describe(Describe),
    /// Tell why an instance does not go on, down to the child or attempt that holds it up.
    Why(OfInstance),
    /// Tell what led to a run or to a record of a durable topic, and what came of it, as a tree.
    Trace(TraceOptions),
    /// Print the history of a run.
    History(History),
    /// Print the events of a run as they become durable, until it ends; what is published to a topic; or what becomes of
    /// the runs that a filter names.
    Tail(Tail),
    /// Print what activities of a run send to an output stream while they work, until the run ends; or which streams there
    /// are.
    Stream(StreamOf),
    /// Print how an instance has ended: exit code 0 if it has completed, 1 if not, 3 if it has not ended.
    Result(ResultOf),
    /// Start an instance.
    Start(Start),
    /// Send a signal to an instance.
    Signal(Signal),
    /// Ask an instance a query, which leaves no trace; also of the state that it had at an event of its history.
    Query(QueryOf),
    /// Ask an instance for an update, and print its answer.
    Update(Update),
    /// Have an entity perform a command, and print its answer.
    Command(CommandEntity),
    /// Ask an entity a query, which leaves no trace.
    Read(ReadEntity),
    /// List the keys of an entity, the latest begun first.
    Entities(Entities),
    /// Delete an entity: it is as if nobody had commanded it yet.
    DeleteEntity(OfEntity),
    /// Ask an instance to end, with time to clean up.
    Cancel(End),
    /// End an instance without asking its code.
    Terminate(End),
    /// End the latest run of an instance, and begin another with its history up to an event.
    Reset(Reset),
    /// Stop the code of an instance; what it is sent is recorded.
    Pause(End),
    /// Take a paused or parked instance up again.
    Resume(OfInstance),
    /// Do one thing to all runs that a filter finds, once each.
    #[command(subcommand)]
    Bulk(BulkCommand),
    /// Start runs by the calendar: make, show, pause and trigger schedules.
    #[command(subcommand)]
    Schedule(Box<ScheduleCommand>),
    /// Print counts since the program was started, and sizes now.
    Stats(OfProgram),
    /// Print the parts of the runtime, and how often each was restarted.
    Parts(OfProgram),
    /// Show what the program does, again and again: workflows, queues, parts, commits.
    Top(Top),
    /// Print the topics and subscriptions of the broker.
    Topology(OfProgram),
    /// List the topics: what is kept of the durable ones, and what was published to those in memory.
    Topics(OfProgram),
    /// Print records of a durable topic, and with --follow those that come.
    Records(Records),
    /// Publish to a topic, and print where the record is.
    Publish(Publish),
    /// List the durable subscriptions of a topic, and how far behind each is.
    Subscriptions(Subscriptions),
    /// Drop records of a durable topic: --all, or those --before one.
    PurgeTopic(PurgeTopic),
    /// Delete a durable topic with its records and its subscriptions.
    DeleteTopic(OfTopic),
    /// Remove a durable subscription; opened again it is a new one.
    RemoveSubscription(OfSubscription),
    /// Let a key go on that a durable subscription holds behind an undelivered record.
    ReleaseKey(ReleaseKey),
    /// Publish undelivered records to their own topics again, each once: one by its token, or --all.
    SendBack(SendBack),
    /// Print what is registered: workflows, activities, task queues, topics.
    Catalogue(OfProgram),
    /// Print which versions of workflows there are, how many live runs have each, and which code can be deleted.
    Versions(OfProgram),
    /// Print how many runs there are, by workflow and by what they do.
    Counts(OfProgram),
    /// Tell what a store holds: its file, its runs, and whether it had to be repaired.
    Inspect(OfProgram),
    /// Read every record of a store, and tell what is damaged: exit code 3 if anything is.
    Verify(OfProgram),
    /// Write a copy of a store, which is a store, also while a process has it.
    Backup(Copy),
    /// Make a store of a backup, which is verified first.
    Restore(Restore),
    /// Write all histories of a store as lines of JSON, of which import makes a store.
    Export(Copy),
    /// Give free space of a store's file back.
    Compact(OfProgram),
    /// Ask for any operation of the API, and print its answer as it is.
    Call(Call),
}
