//! The report as HTML and as Markdown.

use std::fmt::Write;

use super::grid::Grid;
use super::{Beside, SuiteResult, allocators, engines};
use crate::runs::{NOT_RUN, PEERS};
use crate::{Failure, Machine, Verdict, approximate};

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #222831; --soft: #667; --line: #dfe3e8; --paper: #fff; --card: #f7f9fb; --good: #0a7d4f; --bad: #c0392b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa4b2; --line: #303743; --paper: #14181e; --card: #1b2129; --good: #4cc38a; --bad: #ff7b6b; } }
* { box-sizing: border-box; }
body { font: 15px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1160px; margin: 0 auto; padding: 2.5rem 1.5rem 5rem; }
h1 { font-size: 1.9rem; margin: 0 0 .3rem; }
h2 { font-size: 1.35rem; margin: 3.2rem 0 .2rem; padding-top: 1rem; border-top: 2px solid var(--line); }
nav { display: flex; flex-wrap: wrap; gap: .4rem; margin: 1.2rem 0; }
nav a { padding: .15rem .7rem; border: 1px solid var(--line); border-radius: 1rem; color: inherit; text-decoration: none; font-size: 13px; background: var(--card); }
nav a:hover { border-color: var(--soft); }
.lead, .about { color: var(--soft); font-size: 13px; margin: .2rem 0 .8rem; }
.held { font-weight: 600; color: var(--good); }
.missed { font-weight: 600; color: var(--bad); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 500px), 1fr)); gap: .8rem; margin: 1rem 0; }
.charts svg { width: 100%; height: auto; background: white; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; margin: .3rem 0 1.4rem; font-variant-numeric: tabular-nums; font-size: 13px; }
th { font-weight: 600; color: var(--soft); border-bottom: 2px solid var(--line); }
th, td { padding: .22rem .75rem .22rem 0; text-align: left; white-space: nowrap; }
td { border-bottom: 1px solid var(--line); }
tr:hover td { background: var(--card); }
td.n, th.n { text-align: right; }
td.long { white-space: normal; }
td.yes { color: var(--good); }
td.no { font-weight: 600; color: var(--bad); }
.scroll { overflow-x: auto; }
details { margin: .4rem 0; }
summary { cursor: pointer; color: var(--soft); font-size: 13px; }
";

/// One self-contained page: no script, nothing loaded from elsewhere.
#[must_use]
pub fn html(suites: &[SuiteResult]) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    page.push_str(
        "<meta name=\"viewport\" content=\"width=device-width\">\n<title>millrun benchmarks</title>\n",
    );
    page.push_str(&format!(
        "<style>{STYLE}</style>\n<h1>millrun benchmarks</h1>\n<p class=\"lead\">Medians of interleaved rounds, \
         with the slowest and the fastest beside them; every row says what a crash would lose.</p>\n<nav>"
    ));
    let beside = beside(suites);
    if !beside.is_empty() {
        page.push_str("<a href=\"#beside\">beside each other</a>");
    }
    for suite in suites {
        page.push_str(&format!("<a href=\"#{0}\">{0}</a>", escaped(&suite.name)));
    }
    page.push_str("<a href=\"#not-run\">not run</a></nav>\n");
    if !beside.is_empty() {
        page.push_str("<h2 id=\"beside\">beside each other</h2>\n");
    }
    for Beside { title, grid } in &beside {
        page.push_str(&format!("<p>{}</p>\n", escaped(title)));
        html_grid(&mut page, grid);
    }
    for suite in suites {
        html_suite(&mut page, suite);
    }
    page.push_str("<h2 id=\"not-run\">not run</h2>\n");
    html_failures(&mut page, "engine", &not_run(suites));
    page.push_str("</html>\n");
    page
}

/// Engines that have no rows here: those that a program of their own would have measured, and those
/// that the comparison leaves out.
fn not_run(suites: &[SuiteResult]) -> Vec<Failure> {
    let has_rows = |suite: &str| {
        suites
            .iter()
            .any(|result| result.name == suite && !result.rows.is_empty())
    };
    let missing = PEERS.into_iter().filter(|(_, suite)| !has_rows(suite));
    let missing = missing.map(|(engine, suite)| (engine, format!("no {suite}.json here: just bench-peers")));
    let left_out = NOT_RUN.into_iter().map(|(engine, why)| (engine, why.to_owned()));
    let failure = |(engine, why): (&str, String)| Failure {
        what: engine.to_owned(),
        why,
    };
    missing.chain(left_out).map(failure).collect()
}

fn html_failures(page: &mut String, what: &str, failures: &[Failure]) {
    page.push_str(&format!(
        "<div class=\"scroll\"><table>\n<tr><th>{what}<th>why</tr>\n"
    ));
    for Failure { what, why } in failures {
        page.push_str(&format!(
            "<tr><td>{}<td class=\"long\">{}</tr>\n",
            escaped(what),
            escaped(why)
        ));
    }
    page.push_str("</table></div>\n");
}

/// What stands beside each other of several suites.
fn beside(suites: &[SuiteResult]) -> Vec<Beside> {
    engines(suites).into_iter().chain(allocators(suites)).collect()
}

fn html_suite(page: &mut String, suite: &SuiteResult) {
    page.push_str(&format!("<h2 id=\"{0}\">{0}</h2>\n", escaped(&suite.name)));
    if let Some(machine) = &suite.machine {
        page.push_str(&format!("<p class=\"about\">{}</p>\n", escaped(&about(machine))));
    }
    if !suite.verdicts.is_empty() {
        let judged = suite.verdicts.iter().filter(|verdict| verdict.is_judged());
        let (judged, held) = (
            judged.clone().count(),
            judged.filter(|verdict| verdict.holds).count(),
        );
        let class = if held == judged { "held" } else { "missed" };
        page.push_str(&format!(
            "<p class=\"{class}\">{held} of {judged} bars hold</p>\n"
        ));
    }
    if !suite.charts.is_empty() {
        page.push_str("<div class=\"charts\">\n");
        for (_, svg) in &suite.charts {
            page.push_str(&scalable(svg));
            page.push('\n');
        }
        page.push_str("</div>\n");
    }
    if !suite.verdicts.is_empty() {
        html_verdicts(page, &suite.verdicts);
    }
    for grid in Grid::of(&suite.rows) {
        html_grid(page, &grid);
    }
    if !suite.failures.is_empty() {
        page.push_str("<p class=\"missed\">failed, and without a row</p>\n");
        html_failures(page, "what", &suite.failures);
    }
}

/// The picture without a size of its own: the page gives it one.
fn scalable(svg: &str) -> String {
    let Some((head, rest)) = svg.split_once('>') else {
        return svg.to_owned();
    };
    let head: Vec<&str> = head
        .split(' ')
        .filter(|word| !word.starts_with("width=") && !word.starts_with("height="))
        .collect();
    format!("{}>{rest}", head.join(" "))
}

fn html_verdicts(page: &mut String, verdicts: &[Verdict]) {
    page.push_str("<div class=\"scroll\"><table>\n<tr><th>bar<th class=\"n\">reached<th class=\"n\">wanted<th>holds</tr>\n");
    for verdict in verdicts {
        let [name, reached, wanted, holds] = cells(verdict);
        let class = if verdict.holds || !verdict.is_judged() {
            "yes"
        } else {
            "no"
        };
        page.push_str(&format!(
            "<tr><td>{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"{class}\">{}</tr>\n",
            escaped(&name),
            escaped(&reached),
            escaped(&wanted),
            escaped(&holds)
        ));
    }
    page.push_str("</table></div>\n");
}

fn html_grid(page: &mut String, grid: &Grid) {
    page.push_str(&format!("<p class=\"about\">{}</p>\n", escaped(&in_common(grid))));
    page.push_str("<div class=\"scroll\"><table>\n<tr>");
    for column in &grid.columns {
        page.push_str(&format!(
            "<th{}>{}",
            number_class(column.is_number),
            escaped(&column.name)
        ));
    }
    page.push_str("</tr>\n");
    for line in &grid.lines {
        page.push_str("<tr>");
        for (column, cell) in grid.columns.iter().zip(line) {
            page.push_str(&format!(
                "<td{}>{}",
                number_class(column.is_number),
                escaped(cell)
            ));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn number_class(is_number: bool) -> &'static str {
    if is_number { " class=\"n\"" } else { "" }
}

/// The same as Markdown tables, with links to the charts beside it.
#[must_use]
pub fn markdown(suites: &[SuiteResult]) -> String {
    let mut page = String::from("# millrun benchmarks\n");
    for Beside { title, grid } in beside(suites) {
        page.push_str(&format!("\n## {title}\n\n"));
        markdown_grid(&mut page, &grid);
    }
    for suite in suites {
        page.push_str(&format!("\n## {}\n", suite.name));
        if let Some(machine) = &suite.machine {
            page.push_str(&format!("\n{}\n", about(machine)));
        }
        for (file, _) in &suite.charts {
            page.push_str(&format!("\n![{file}]({file})\n"));
        }
        if !suite.verdicts.is_empty() {
            page.push_str("\n| bar | reached | wanted | holds |\n|---|--:|--:|---|\n");
            for verdict in &suite.verdicts {
                page.push_str(&markdown_line(&cells(verdict)));
            }
        }
        for grid in Grid::of(&suite.rows) {
            page.push_str(&format!("\n{}\n\n", in_common(&grid)));
            markdown_grid(&mut page, &grid);
        }
        if !suite.failures.is_empty() {
            page.push_str("\nFailed, and without a row:\n\n");
            markdown_failures(&mut page, "what", &suite.failures);
        }
    }
    page.push_str("\n## not run\n\n");
    markdown_failures(&mut page, "engine", &not_run(suites));
    page
}

fn markdown_failures(page: &mut String, what: &str, failures: &[Failure]) {
    page.push_str(&format!("| {what} | why |\n|---|---|\n"));
    for Failure { what, why } in failures {
        page.push_str(&markdown_line(&[what.clone(), why.clone()]));
    }
}

fn markdown_grid(page: &mut String, grid: &Grid) {
    let names: Vec<String> = grid.columns.iter().map(|column| column.name.clone()).collect();
    page.push_str(&markdown_line(&names));
    let columns = grid.columns.iter();
    let rules = columns.map(|column| if column.is_number { "--:|" } else { "---|" });
    page.push_str(&format!("|{}\n", rules.collect::<String>()));
    for line in &grid.lines {
        page.push_str(&markdown_line(line));
    }
}

fn markdown_line(cells: &[String]) -> String {
    let mut line = String::from("|");
    for cell in cells {
        line.push_str(&format!(" {} |", cell.replace('|', "\\|")));
    }
    line.push('\n');
    line
}

fn cells(verdict: &Verdict) -> [String; 4] {
    let relation = if verdict.at == "most" { "≤" } else { "≥" };
    [
        verdict.name.clone(),
        format!("{} {}", approximate(verdict.value), verdict.unit),
        format!("{relation} {} {}", approximate(verdict.bar), verdict.unit),
        verdict.said(),
    ]
}

fn about(machine: &Machine) -> String {
    format!("{machine}, {}", date(machine.taken_at_s)).replace('\n', "; ")
}

fn in_common(grid: &Grid) -> String {
    let mut line = String::new();
    for (place, (name, value)) in grid.same.iter().enumerate() {
        let comma = if place == 0 { "" } else { ", " };
        // Writing to a string does not fail.
        write!(line, "{comma}{name}: {value}").ok();
    }
    line
}

/// Seconds since 1970 as a date, by the days of the Gregorian calendar (Howard Hinnant,
/// "chrono-compatible low-level date algorithms", `civil_from_days`).
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Text as it may stand in HTML and SVG, in attributes too.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_795_219_200, "2026-11-21"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn text_cannot_break_out_of_a_page_or_a_table() {
        let row = json!({ "framework": "<b>|", "median_per_s": 1.0 });
        let suite = SuiteResult {
            name: "s".into(),
            machine: None,
            rows: vec![
                row.as_object().unwrap().clone(),
                json!({ "framework": "b" }).as_object().unwrap().clone(),
            ],
            verdicts: Vec::new(),
            failures: Vec::new(),
            charts: Vec::new(),
        };
        assert!(html(std::slice::from_ref(&suite)).contains("&lt;b&gt;|"));
        assert!(markdown(&[suite]).contains("| <b>\\| |"));
    }
}
