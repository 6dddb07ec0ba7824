//! What led to a run or a record, and what came of it, as a tree.
//!
//! ```text
//!   root ──► page of links ──► what they lead to, the nearest first, each once ──► tree, or lines
//! ```
//!
//! Each node is one request or a few, so that a file of a store is walked like a program.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;

use super::error::ClientError;
use super::options::{Form, TraceOptions};
use super::place::client;
use super::raw::Raw;
use super::time::date_and_time;
use super::wire::{Ask, Client};
use super::{PAGE, is_run, next_after};
use crate::outcome::Outcome;
use crate::output::{note, tell};
use crate::table::on_one_line;

/// How many pages of one node are read at most.
const PAGES_MAX: usize = 8;
/// How many links of all nodes of one direction are kept at most.
const LINKS_MAX: usize = 100_000;

/// Prints what led to something, and what came of it.
pub(super) async fn trace(options: TraceOptions) -> Result<Outcome, Box<dyn Error>> {
    let root = Root::of(&options)?;
    let client = client(&options.at).await?;
    let mut is_cut = false;
    let (mut trees, both) = (Vec::new(), options.causes == options.effects);
    for (direction, is_wanted) in [("causes", options.causes), ("effects", options.effects)] {
        if is_wanted || both {
            let tree = TraceTree::walked(&client, &root, direction, &options).await?;
            is_cut |= tree.is_cut;
            trees.push(tree);
        }
    }
    write(&trees, options.form)?;
    if is_cut {
        note("there is more: --limit, --depth, or a trace from one of the last");
    }
    Ok(Outcome::Complete)
}

/// What a request for a page of a trace is made of.
#[derive(Clone, Debug)]
struct Root {
    operation: &'static str,
    value: String,
    query: Option<(&'static str, String)>,
}

impl Root {
    /// What the command line names.
    fn of(options: &TraceOptions) -> Result<Self, ClientError> {
        let value = options.of.clone();
        let of = |operation, query| {
            Ok(Self {
                operation,
                value: value.clone(),
                query,
            })
        };
        match (&options.record, &options.record_id, options.operation) {
            (None, Some(id), _) => of("trace_record", Some(("id", id.clone()))),
            (Some(record), ..) => {
                let is_number = !record.is_empty() && record.bytes().all(|byte| byte.is_ascii_digit());
                let name = match record.len() {
                    28 => "token",
                    _ if is_number => "sequence",
                    _ => {
                        let why = format!("{record:?} is neither a token of a record nor its number");
                        return Err(ClientError::Usage(format!("{why}\ntry: millrun records TOPIC")));
                    }
                };
                of("trace_record", Some((name, record.clone())))
            }
            (None, None, operation) if is_run(&options.of) => of(
                "trace_run",
                operation.map(|operation| ("operation", operation.to_string())),
            ),
            (None, None, None) => of("trace", None),
            (None, None, Some(_)) => {
                let why = "an operation is of a run: name that by its 32 digits\ntry: millrun history ID";
                Err(ClientError::Usage(why.to_owned()))
            }
        }
    }

    /// The run, operation, instance or record at the other end of a link, as the API names it.
    fn at(end: &Raw) -> Option<Self> {
        let (operation, value, query) = match &*end.text_of("kind") {
            "run" => ("trace_run", "run", None),
            "operation" => ("trace_run", "run", Some("operation")),
            "instance" => ("trace", "id", None),
            "record" => ("trace_record", "topic", Some("sequence")),
            _ => return None,
        };
        Some(Self {
            operation,
            value: end.text_of(value),
            query: query.map(|name| (name, end.text_of(name))),
        })
    }

    /// The first pages as one; its links are those of this direction.
    async fn ask(&self, client: &Client, direction: &str) -> Result<TracedPage, ClientError> {
        let (mut links, mut after, mut first) = (Vec::new(), None, None);
        for _ in 0..PAGES_MAX {
            let mut query = vec![("limit", PAGE.to_string()), ("direction", direction.to_owned())];
            query.extend(self.query.clone());
            query.extend(after.map(|after| ("after", after)));
            let ask = Ask {
                operation: self.operation,
                value: &self.value,
                query,
                ..Ask::default()
            };
            let page = Raw::parse(&client.ask(ask).await?)?;
            links.extend(page.list_of(direction));
            after = next_after(&page)?;
            first.get_or_insert(page);
            if after.is_none() {
                break;
            }
        }
        let first = first.ok_or_else(|| ClientError::Answer("there is no page".to_owned()))?;
        Ok(TracedPage {
            first,
            links,
            has_more: after.is_some(),
        })
    }
}

/// What is told of a node.
#[derive(Debug)]
struct TracedPage {
    first: Raw,
    links: Vec<Raw>,
    /// There are more links than were read.
    has_more: bool,
}

/// Something that a walk has come to.
#[derive(Debug)]
struct TreeNode {
    depth: u64,
    /// The node and the number of its link from which the walk came here.
    from: Option<(usize, usize)>,
    /// Its links, or why it cannot be traced.
    page: Result<TracedPage, String>,
}

/// All that a walk has come to, the nearest first.
#[derive(Debug)]
struct TraceTree {
    direction: &'static str,
    nodes: Vec<TreeNode>,
    /// There is more than the walk may have.
    is_cut: bool,
}

impl TraceTree {
    async fn walked(
        client: &Client,
        root: &Root,
        direction: &'static str,
        options: &TraceOptions,
    ) -> Result<Self, ClientError> {
        let mut tree = Self {
            direction,
            nodes: Vec::new(),
            is_cut: false,
        };
        let (mut walked, mut links_len) = (BTreeMap::new(), 0);
        let mut line = VecDeque::from([(root.clone(), 0, None, String::new())]);
        while let Some((root, depth, from, address)) = line.pop_front() {
            if walked.contains_key(&address) {
                continue;
            }
            if tree.nodes.len() as u64 >= options.limit || links_len >= LINKS_MAX {
                tree.is_cut = true;
                break;
            }
            let page = match root.ask(client, direction).await {
                Ok(page) => Ok(page),
                // What a link leads to may be gone, and the rest is told all the same.
                Err(ClientError::Problem(problem)) if from.is_some() => Err(problem.summary()),
                Err(error) => return Err(error),
            };
            let number = tree.nodes.len();
            walked.insert(address, number);
            if let Ok(page) = &page {
                let of = page.first.get("of").map(|of| of.text_of("trace"));
                // An instance or a token is found to be a run or a record, which the walk may have been at.
                if walked
                    .insert(of.unwrap_or_default(), number)
                    .is_some_and(|before| before != number)
                {
                    continue;
                }
                links_len += page.links.len();
                tree.is_cut |= page.has_more;
                for (nth, link) in page.links.iter().enumerate() {
                    let Some((end, root)) = link.get("to").and_then(|end| Some((Root::at(&end)?, end)))
                    else {
                        continue;
                    };
                    let address = root.text_of("trace");
                    if walked.contains_key(&address) {
                        continue;
                    }
                    if depth == options.depth {
                        tree.is_cut = true;
                        break;
                    }
                    line.push_back((end, depth + 1, Some((number, nth)), address));
                }
            }
            tree.nodes.push(TreeNode { depth, from, page });
        }
        Ok(tree)
    }

    /// The nodes as lines of JSON.
    fn json(&self) -> impl Iterator<Item = String> {
        self.nodes.iter().map(|node| {
            let (from, link) = match node.from {
                Some((from, link)) => (from.to_string(), link.to_string()),
                None => ("null".to_owned(), "null".to_owned()),
            };
            let told = match &node.page {
                Ok(page) => {
                    let field = |name| page.first.get(name).map_or_else(|| "null".to_owned(), |it| it.json().to_owned());
                    let links: Vec<_> = page.links.iter().map(Raw::json).collect();
                    format!(
                        r#""of":{},"about":{},"trimmed_before":{},"links":[{}],"has_more":{},"problem":null"#,
                        field("of"),
                        field("about"),
                        field("trimmed_before"),
                        links.join(","),
                        page.has_more
                    )
                }
                Err(why) => {
                    let why = super::text(why);
                    format!(r#""of":null,"about":null,"trimmed_before":null,"links":[],"has_more":false,"problem":{why}"#)
                }
            };
            format!(
                r#"{{"direction":"{}","depth":{},"from":{from},"link":{link},{told}}}"#,
                self.direction, node.depth
            )
        })
    }

    /// The links as lines that are indented by how far away they are, what a link leads to below it.
    fn lines(&self) -> Vec<String> {
        let mut below: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (number, node) in self.nodes.iter().enumerate() {
            below.extend(node.from.map(|from| (from, number)));
        }
        let mut lines = vec![self.direction.to_owned()];
        // What is still to be written, the next at the end: a link of a node.
        let mut line: Vec<(usize, usize)> = Vec::new();
        let begin = |number: usize, line: &mut Vec<(usize, usize)>, lines: &mut Vec<String>| {
            let node = &self.nodes[number];
            let indent = "  ".repeat(usize::try_from(node.depth).unwrap_or(0) + 1);
            match &node.page {
                Ok(page) => {
                    if let Some(before) = page.first.get("trimmed_before") {
                        lines.push(format!("{indent}(trimmed before event {})", before.text()));
                    }
                    if page.has_more {
                        lines.push(format!(
                            "{indent}(the first {} links; there are more)",
                            page.links.len()
                        ));
                    }
                    if page.links.is_empty() && node.depth == 0 {
                        lines.push(format!("{indent}(nothing)"));
                    }
                    line.extend((0..page.links.len()).rev().map(|nth| (number, nth)));
                }
                Err(why) => lines.push(on_one_line(&format!("{indent}({why})"))),
            }
        };
        if !self.nodes.is_empty() {
            begin(0, &mut line, &mut lines);
        }
        while let Some((number, nth)) = line.pop() {
            let node = &self.nodes[number];
            let Ok(page) = &node.page else { continue };
            let indent = "  ".repeat(usize::try_from(node.depth).unwrap_or(0) + 1);
            lines.push(on_one_line(&format!("{indent}{}", shown(&page.links[nth]))));
            if let Some(child) = below.get(&(number, nth)) {
                begin(*child, &mut line, &mut lines);
            }
        }
        lines
    }
}

/// A link as a person reads it.
fn shown(link: &Raw) -> String {
    let mut words = vec![link.text_of("relation")];
    words.extend(link.get("name").map(|name| name.text()));
    if let Some(to) = link.get("to") {
        let [run, operation, topic, sequence] =
            ["run", "operation", "topic", "sequence"].map(|name| to.text_of(name));
        let instance = link.get("instance").map(|id| id.text());
        words.push("─".to_owned());
        words.extend(
            match &*to.text_of("kind") {
                "run" => [instance, Some(format!("run {run}"))],
                "operation" => [Some(format!("operation {operation} of run {run}")), None],
                "record" => [Some(format!("record {sequence} of {topic}")), None],
                _ => [instance, None],
            }
            .into_iter()
            .flatten(),
        );
    } else {
        words.extend(link.get("instance").map(|id| format!("─ {}", id.text())));
    }
    let mut rest = Vec::new();
    rest.extend(link.number_of("at_us").map(date_and_time));
    if let Some(attempts) = link.number_of("attempts").filter(|attempts| *attempts > 1) {
        rest.push(format!("{attempts} attempts"));
    }
    let (outcome, detail) = (link.text_of("outcome"), link.get("detail"));
    if outcome != "done" {
        let detail = detail.map(|detail| format!(": {}", detail.text()));
        rest.push(format!("{outcome}{}", detail.unwrap_or_default()));
    }
    let words = words.join(" ");
    match rest.is_empty() {
        true => words,
        false => format!("{words}  ({})", rest.join(", ")),
    }
}

/// What is traced, on a line.
fn headed(page: &TracedPage) -> String {
    let about = page.first.get("about");
    let of = page.first.get("of");
    let (about, of) = match (about, of) {
        (Some(about), Some(of)) => (about, of),
        _ => return String::new(),
    };
    let text = match &*of.text_of("kind") {
        "record" => {
            let (topic, number) = (of.text_of("topic"), of.text_of("sequence"));
            let key = about.get("key").map(|key| format!("  key {}", key.text()));
            format!(
                "record {number} of {topic}  {}{}",
                about.text_of("token"),
                key.unwrap_or_default()
            )
        }
        kind => {
            let [id, workflow, ended] = ["id", "workflow", "ended"].map(|name| about.text_of(name));
            let ended = if ended.is_empty() { "not ended" } else { &ended };
            let operation = match kind {
                "operation" => format!("operation {} of ", of.text_of("operation")),
                _ => String::new(),
            };
            format!("{operation}{id}  {workflow}  {ended}  run {}", of.text_of("run"))
        }
    };
    on_one_line(&text)
}

fn write(trees: &[TraceTree], form: Form) -> Result<(), Box<dyn Error>> {
    let mut all = trees.iter().flat_map(TraceTree::json);
    if form.jsonl {
        return Ok(all.try_for_each(tell)?);
    }
    if form.json {
        return Ok(tell(format_args!("[{}]", all.collect::<Vec<_>>().join(",")))?);
    }
    let root = trees.first().and_then(|tree| tree.nodes.first());
    if let Some(Ok(page)) = root.map(|root| &root.page) {
        tell(headed(page))?;
    }
    for tree in trees {
        tell(tree.lines().join("\n"))?;
    }
    Ok(())
}
