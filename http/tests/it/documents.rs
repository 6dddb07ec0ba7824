//! The tables of the README are those of the code.

use std::collections::BTreeSet;

use axum::http::Method;
use millrun::{RunError, StartError};
use millrun_http::{METRICS, OPERATIONS, PROBLEMS};

/// The rows of the table below a heading of the README, without its head.
fn rows(heading: &str) -> Vec<&'static str> {
    let readme = include_str!("../../README.md");
    let (_, part) = readme.split_once(&format!("\n## {heading}\n")).unwrap();
    let part = part.split("\n## ").next().unwrap();
    part.lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .collect()
}

#[test]
fn each_operation_stands_in_the_readme() {
    let expected: Vec<_> = OPERATIONS
        .iter()
        .map(|operation| {
            let (name, method, path) = (operation.name, &operation.method, operation.path);
            let (role, about) = (operation.role.name(), operation.about);
            format!("| `{name}` | {method} | `{path}` | {role} | {about} |")
        })
        .collect();
    assert_eq!(rows("Operations"), expected);
    let names: BTreeSet<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
    assert_eq!(names.len(), OPERATIONS.len());
    let methods = [Method::GET, Method::POST];
    assert!(
        OPERATIONS
            .iter()
            .all(|operation| methods.contains(&operation.method))
    );
}

#[test]
fn each_metric_stands_in_the_readme() {
    let expected: Vec<_> = METRICS
        .iter()
        .map(|metric| {
            let columns = [
                format!("`{}`", metric.name),
                metric.kind.name().to_owned(),
                metric.unit.unwrap_or_default().to_owned(),
                metric.label.map(|label| format!("`{label}`")).unwrap_or_default(),
                metric.about.to_owned(),
            ];
            let cells = columns.map(|cell| {
                if cell.is_empty() {
                    " ".into()
                } else {
                    format!(" {cell} ")
                }
            });
            format!("|{}|", cells.join("|"))
        })
        .collect();
    assert_eq!(rows("Metrics"), expected);
    let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), METRICS.len());
}

#[test]
fn each_problem_stands_in_the_readme_and_each_error_of_a_run_is_one() {
    let expected: Vec<_> = PROBLEMS
        .iter()
        .map(|problem| format!("| `{}` | {} | {} |", problem.code, problem.status, problem.title))
        .collect();
    assert_eq!(rows("Problems"), expected);
    let codes: BTreeSet<_> = PROBLEMS.iter().map(|problem| problem.code).collect();
    assert_eq!(codes.len(), PROBLEMS.len());
    assert!(
        PROBLEMS
            .iter()
            .all(|problem| (400..600).contains(&problem.status))
    );
    for code in RunError::CODES.into_iter().chain(StartError::CODES) {
        // An id that is none is told as any other is.
        assert!(code == "id" || codes.contains(code), "{code}");
    }
    assert_eq!(PROBLEMS.last().unwrap().code, "unknown");
}
