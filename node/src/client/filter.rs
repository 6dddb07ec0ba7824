//! Which runs are meant: the options that `list`, `tail` and `bulk` have in common.

use clap::Args;
use clap::builder::PossibleValuesParser;
use millrun::operating::RunStatus;

use super::moment::Moment;
use super::raw::Raw;
use super::{object, text};

/// Which runs are meant, as far as each change of one tells.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which runs")]
pub(crate) struct WhichRuns {
    /// Those of this workflow.
    #[arg(long, value_name = "NAME")]
    pub(crate) workflow: Option<String>,
    /// Those that do this, or have ended so; several with commas.
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = statuses())]
    pub(crate) status: Vec<String>,
    /// Those that have ended so; several with commas.
    #[arg(long, value_name = "OUTCOME", value_delimiter = ',', value_parser = outcomes())]
    pub(crate) outcome: Vec<String>,
    /// Those of instances whose ids begin with this.
    #[arg(long, value_name = "TEXT")]
    pub(crate) id_prefix: Option<String>,
}

/// Which runs are meant.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which runs")]
pub(crate) struct RunFilter {
    #[command(flatten)]
    pub(crate) which: WhichRuns,
    /// Those that began at this time or later: 2h ago, or 2026-11-25T05:30:00 in UTC.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Moment>,
    /// Those that began before this time.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Moment>,
    /// Those that ended at this time or later.
    #[arg(long, value_name = "TIME")]
    pub(crate) ended_since: Option<Moment>,
    /// Those that ended before this time.
    #[arg(long, value_name = "TIME")]
    pub(crate) ended_until: Option<Moment>,
}

fn statuses() -> PossibleValuesParser {
    PossibleValuesParser::new(RunStatus::ALL.map(RunStatus::name))
}

/// Those of runs that have ended.
fn outcomes() -> PossibleValuesParser {
    PossibleValuesParser::new([
        "completed",
        "failed",
        "cancelled",
        "terminated",
        "timed-out",
        "continued",
    ])
}

impl WhichRuns {
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            workflow,
            status,
            outcome,
            id_prefix,
        } = self;
        workflow.is_none() && status.is_empty() && outcome.is_empty() && id_prefix.is_none()
    }

    fn statuses(&self) -> Vec<&str> {
        self.status
            .iter()
            .chain(&self.outcome)
            .map(String::as_str)
            .collect()
    }

    /// Whether a change, as the feed tells it, is of a run that is meant.
    pub(crate) fn has(&self, change: &Raw) -> bool {
        if self.is_empty() {
            return true;
        }
        let status = match &*change.text_of("kind") {
            "started" | "resumed" => "running".to_owned(),
            _ => change.text_of("status"),
        };
        let (workflow, id) = (change.text_of("workflow"), change.text_of("id"));
        let statuses = self.statuses();
        !id.is_empty()
            && self.workflow.as_ref().is_none_or(|wanted| *wanted == workflow)
            && (statuses.is_empty() || statuses.contains(&&*status))
            && self
                .id_prefix
                .as_ref()
                .is_none_or(|prefix| id.starts_with(prefix))
    }
}

impl RunFilter {
    pub(crate) fn is_empty(&self) -> bool {
        self.which.is_empty() && self.times().next().is_none()
    }

    fn times(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let times = [
            ("started_from_us", self.since),
            ("started_until_us", self.until),
            ("ended_from_us", self.ended_since),
            ("ended_until_us", self.ended_until),
        ];
        times.into_iter().filter_map(|(name, time)| Some((name, time?.0)))
    }

    /// As parameters of the API.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        let statuses = self.which.statuses().join(",");
        let named = [
            ("workflow", self.which.workflow.clone()),
            ("status", (!statuses.is_empty()).then_some(statuses)),
            ("id_prefix", self.which.id_prefix.clone()),
        ];
        let named = named.into_iter().filter_map(|(name, value)| Some((name, value?)));
        named
            .chain(self.times().map(|(name, time)| (name, time.to_string())))
            .collect()
    }

    /// As a field of a body.
    pub(crate) fn json(&self) -> String {
        let statuses: Vec<_> = self.which.statuses().into_iter().map(text).collect();
        let mut fields = vec![("status", format!("[{}]", statuses.join(",")))];
        fields.extend(
            self.which
                .workflow
                .as_deref()
                .map(|workflow| ("workflow", text(workflow))),
        );
        fields.extend(
            self.which
                .id_prefix
                .as_deref()
                .map(|prefix| ("id_prefix", text(prefix))),
        );
        fields.extend(self.times().map(|(name, time)| (name, time.to_string())));
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        object(&fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_from_those_of_other_runs() {
        let which = WhichRuns {
            workflow: Some("order".into()),
            status: vec!["parked".into()],
            outcome: vec!["failed".into()],
            id_prefix: Some("o-".into()),
        };
        for (change, is_meant) in [
            (
                r#"{"kind":"ended","status":"failed","id":"o-1","workflow":"order"}"#,
                true,
            ),
            (
                r#"{"kind":"parked","status":"parked","id":"o-1","workflow":"order"}"#,
                true,
            ),
            (
                r#"{"kind":"ended","status":"completed","id":"o-1","workflow":"order"}"#,
                false,
            ),
            (r#"{"kind":"started","id":"o-1","workflow":"order"}"#, false),
            (
                r#"{"kind":"ended","status":"failed","id":"p-1","workflow":"order"}"#,
                false,
            ),
            (
                r#"{"kind":"ended","status":"failed","id":"o-1","workflow":"trip"}"#,
                false,
            ),
            (r#"{"kind":"part-failed","part":"shard 0"}"#, false),
        ] {
            let parsed = Raw::parse(change).unwrap();
            assert_eq!(which.has(&parsed), is_meant, "{change}");
            assert!(WhichRuns::default().has(&parsed), "{change}");
        }
    }

    #[test]
    fn a_filter_is_sent_as_it_is_given() {
        let filter = RunFilter {
            which: WhichRuns {
                workflow: Some("a \"b\"".into()),
                status: vec!["running".into(), "paused".into()],
                ..WhichRuns::default()
            },
            until: Some(Moment(7)),
            ..RunFilter::default()
        };
        assert!(!filter.is_empty() && RunFilter::default().is_empty());
        assert_eq!(
            filter.query(),
            [
                ("workflow", "a \"b\"".to_owned()),
                ("status", "running,paused".to_owned()),
                ("started_until_us", "7".to_owned())
            ]
        );
        assert_eq!(
            filter.json(),
            r#"{"status":["running","paused"],"workflow":"a \"b\"","started_until_us":7}"#
        );
        assert_eq!(RunFilter::default().json(), r#"{"status":[]}"#);
    }
}
