//! The answer to each operation.

use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use millrun::history::Sequence;
use millrun::operating::{InstanceDescription, InstanceStatus};
use millrun::{InstanceId, ResultError, RunError, RunId, Runtime, Timestamp};

use crate::body::{
    EmptyBody, NameBody, QueryBody, ReasonBody, ReleaseBody, ResetBody, SessionBody, SignalBody, UpdateBody,
    parse, payload,
};
use crate::bulk::{start_bulk, told_bulk};
use crate::entities::{entities_page, on_entity};
use crate::exporting::export_history;
use crate::keys::key_of;
use crate::metrics::{MEDIA_TYPE, metrics};
use crate::openapi::openapi_json;
use crate::operations::Action;
use crate::problem::Problem;
use crate::publish::publish;
use crate::query::{FindQuery, PageQuery, StreamQuery, at_event, next_of, own_page, past_after, wait};
use crate::router::{Served, value_of};
use crate::schedules::on_schedule;
use crate::starts::{start_lines, start_one};
use crate::store::upkeep;
use crate::stream::{changes, run_events, run_output};
use crate::topics::{
    ExposedTopic, delete_topic, purge_topic, record_tail, records_page, send_back, subscriptions_page, tail,
};
use crate::trace::{trace_instance, trace_record, trace_run};
use crate::traceparent::trace_of;
use crate::upkeep_time::UpkeepMark;
use crate::view::{
    Json, bulks, catalogue, counts, described_at, description, finished, found, history, instances, object,
    output_streams, park_reason, parts, past, schedules, stats, versions, why,
};
use crate::waiting::within;
use crate::{Access, Redaction, Role, TopicRequest, TopicUse};

/// A request that has passed its checks.
pub(crate) struct Asked<'a> {
    /// Its head.
    pub(crate) head: &'a Parts,
    /// The access rules that gave the role.
    pub(crate) access: &'a Access,
    /// The caller's role, which is sufficient.
    pub(crate) role: Role,
    /// The value in its path.
    pub(crate) value: &'a str,
    /// The query part of its URL.
    pub(crate) query: &'a str,
    /// Its body; empty if the operation has none.
    pub(crate) body: &'a [u8],
}

impl Asked<'_> {
    /// Whether the caller may use the topic of this name in this way.
    pub(crate) fn may_use(&self, topic: &str, wanted: TopicUse) -> bool {
        let is_role_enough = match wanted {
            TopicUse::Publish => self.role >= Role::Operator,
            TopicUse::Read => self.role >= Role::Reader,
        };
        let asked = TopicRequest {
            head: self.head,
            role: self.role,
            topic,
            wanted,
        };
        self.access.may_use(&asked, is_role_enough)
    }
}

/// Performs an operation. What it changes is durable before this returns.
///
/// Each request has a future of this size, which has room only for a start. Other operations are boxed: otherwise they would
/// make the future several kilobytes large, which each request would allocate and move.
pub(crate) async fn answer(served: &Served, action: Action, asked: Asked<'_>) -> Result<Response, Problem> {
    let id = match action {
        Action::Start => Some(asked.value),
        Action::StartByKey => None,
        _ => return Box::pin(answer_other(served, action, asked)).await,
    };
    let started = start_one(served, id, &asked.head.headers, asked.body).await?;
    Ok(started.respond(&served.redaction))
}

async fn answer_other(served: &Served, action: Action, asked: Asked<'_>) -> Result<Response, Problem> {
    let Asked {
        head,
        value,
        query,
        body,
        ..
    } = asked;
    let runtime = &served.runtime;
    let instance = || runtime.attach_untyped(value);
    let body = match action {
        Action::Live => object([("live", true.into())]),
        Action::Ready => match runtime.stop_cause() {
            None => object([("ready", true.into())]),
            Some(cause) => return Err(RunError::Stopped(cause).into()),
        },
        Action::Session => {
            let SessionBody { end } = parse(body)?;
            return Ok(session(asked, end));
        }
        Action::OpenApi => Json::raw(openapi_json()),
        Action::Catalogue => catalogue(&runtime.catalogue()),
        Action::Versions => versions(&runtime.versions()),
        Action::Instances => {
            let page = PageQuery::parse(query)?;
            let after = page.after.as_deref().map(InstanceId::new).transpose()?;
            instances(runtime.list(after.as_ref(), page.limit + 1).await?, page.limit)
        }
        Action::Finished => {
            let page = PageQuery::parse(query)?;
            let after = page.after.as_deref().map(run).transpose()?;
            finished(runtime.list_finished(after, page.limit + 1).await?, page.limit)
        }
        Action::Find => {
            let FindQuery { filter, after, limit } = FindQuery::parse(query)?;
            let page = runtime.find(&filter, after, limit).await?;
            found(&page, |cursor| next_of(query, cursor))
        }
        Action::Counts => counts(&runtime.counts()),
        Action::Changes => {
            let query = StreamQuery::parse(query, &head.headers)?;
            return changes(runtime, served.streams.take()?, &query);
        }
        Action::Stats => stats(&runtime.stats()),
        Action::Past => {
            let after = Timestamp::from_micros(past_after(query)?);
            let kept = served.past.as_ref().map(|past| past.after(after));
            past(runtime.host().now(), &kept.unwrap_or_default())
        }
        Action::Parts => parts(&runtime.parts()),
        Action::Topology => Json::raw(runtime.broker().topology().to_json()),
        Action::Metrics => return Ok(metrics_answer(runtime)),
        Action::DescribeInstance => match at_event(query)? {
            Some(at) => described_at(&instance()?.at(at).describe().await?),
            None => description(&instance()?.describe().await?),
        },
        Action::DescribeRun => match at_event(query)? {
            Some(at) => described_at(&runtime.run_at(run(value)?, at).describe().await?),
            None => description(&runtime.describe_run(run(value)?).await?),
        },
        Action::Why => why(&instance()?.why().await?),
        Action::WhyRun => why(&runtime.why_run(run(value)?).await?),
        Action::TraceInstance => trace_instance(runtime, value, query).await?,
        Action::TraceRun => trace_run(runtime, run(value)?, query).await?,
        Action::TraceRecord => {
            let may_read = asked.may_use(value, TopicUse::Read);
            trace_record(served, value, query, may_read).await?
        }
        Action::History => {
            let (run, page) = (run(value)?, PageQuery::parse(query)?);
            let after = Sequence::new(page.after_number()?);
            history(&runtime.history(run, after, page.limit).await?, page.limit)
        }
        Action::ExportHistory => return export_history(served, run(value)?).await,
        Action::Events => {
            let (run, query) = (run(value)?, StreamQuery::parse(query, &head.headers)?);
            return run_events(served, run, query).await;
        }
        Action::Outputs => {
            let described = runtime.describe_run(run(value)?).await?;
            output_streams(&runtime.attach_described(&described).streams().await?)
        }
        Action::Output => {
            let query = StreamQuery::parse(query, &head.headers)?;
            let of = value_of(head.uri.path(), Some(2))?;
            return run_output(served, run(&of)?, value, query).await;
        }
        Action::Result => {
            let wait = wait(query)?;
            result(runtime, instance()?.describe().await?, wait).await?
        }
        Action::ResultOfRun => {
            let wait = wait(query)?;
            result(runtime, runtime.describe_run(run(value)?).await?, wait).await?
        }
        Action::Start | Action::StartByKey => unreachable!("a start is answered elsewhere"),
        Action::Starts => {
            return Ok(start_lines(runtime, trace_of(&head.headers), body)
                .await?
                .into_response());
        }
        Action::Topics => {
            let may_read = |topic: &str| asked.may_use(topic, TopicUse::Read);
            served.topics.told(runtime, &may_read).await?
        }
        Action::Tail => match served.topics.get(value)? {
            ExposedTopic::Volatile(topic) => {
                return tail(served, topic, StreamQuery::parse(query, &head.headers)?);
            }
            ExposedTopic::Durable(topic) => {
                return record_tail(served, topic.as_ref(), query, &head.headers).await;
            }
        },
        Action::Records => records_page(runtime, served.topics.durable(value)?, query).await?,
        Action::Subscriptions => {
            if asked.may_use(value, TopicUse::Read) {
                served.topics.refuse_volatile(value)?;
            }
            subscriptions_page(runtime, value, query).await?
        }
        Action::PurgeTopic => purge_topic(runtime, value, parse(body)?).await?,
        Action::DeleteTopic => {
            let EmptyBody {} = parse(body)?;
            delete_topic(runtime, value).await?
        }
        Action::RemoveSubscription => {
            let NameBody { name } = parse(body)?;
            runtime.remove_durable_subscription(value, &name).await?;
            object([("removed", true.into())])
        }
        Action::ReleaseKey => {
            let ReleaseBody { subscription, key } = parse(body)?;
            let released = runtime.release_held_key(value, &subscription, &key).await?;
            object([("released", released.into())])
        }
        Action::SendBack => send_back(runtime, value, parse(body)?).await?,
        Action::Publish => publish(served, value, query, &head.headers, parse(body)?).await?,
        Action::Query => {
            let QueryBody { name, question } = parse(body)?;
            let (instance, question) = (instance()?, payload(question)?);
            let answer = match at_event(query)? {
                Some(at) => instance.at(at).query_untyped(&name, question).await?,
                None => instance.query(&name, question).await?,
            };
            object([("answer", (&answer).into())])
        }
        Action::Entities => entities_page(runtime, value, query).await?,
        Action::EntityRead | Action::EntityCommand | Action::EntityDelete => {
            let entity = value_of(head.uri.path(), Some(2))?;
            on_entity(runtime, action, (&entity, value), &head.headers, body).await?
        }
        Action::Signal => {
            let SignalBody { name, request, value } = parse(body)?;
            let request = request.as_deref().or(key_of(&head.headers)?);
            let (instance, value) = (instance()?, payload(value)?);
            match request {
                Some(request) => instance.signal_as(&name, request, value).await?,
                None => instance.signal(&name, value).await?,
            }
            recorded()
        }
        Action::Update => {
            let UpdateBody { name, request, input } = parse(body)?;
            let key = key_of(&head.headers)?;
            let request = request.as_deref().or(key);
            let request = request.ok_or_else(|| Problem::new("invalid-body", "there is no request"))?;
            let answer = instance()?.update_as(&name, request, payload(input)?).await?;
            object([("answer", (&answer).into())])
        }
        Action::Cancel => {
            let ReasonBody { reason } = parse(body)?;
            instance()?.cancel(&reason).await?;
            recorded()
        }
        Action::Terminate => {
            let ReasonBody { reason } = parse(body)?;
            instance()?.terminate(&reason).await?;
            recorded()
        }
        Action::Reset => {
            let handle = instance()?.reset(parse::<ResetBody>(body)?.point()?).await?;
            object([("run", handle.run_id().into())])
        }
        Action::Pause => {
            let ReasonBody { reason } = parse(body)?;
            instance()?.pause(&reason).await?;
            recorded()
        }
        Action::Resume => {
            let EmptyBody {} = parse(body)?;
            instance()?.resume().await?;
            recorded()
        }
        Action::Bulks => {
            let (after, limit) = own_page(query)?;
            let page = runtime.bulks(after, limit).await?;
            bulks(&page, |cursor| next_of(query, cursor))
        }
        Action::Bulk => told_bulk(&runtime.attach_bulk(value)?).await?,
        Action::BulkStart => Box::pin(start_bulk(served, key_of(&head.headers)?, body)).await?,
        Action::Schedules => {
            let (after, limit) = own_page(query)?;
            let page = runtime.schedules(after, limit).await?;
            schedules(&page, |cursor| next_of(query, cursor))
        }
        Action::Schedule
        | Action::ScheduleMake
        | Action::ScheduleUpdate
        | Action::SchedulePause
        | Action::ScheduleResume
        | Action::ScheduleTrigger
        | Action::ScheduleBackfill
        | Action::ScheduleDelete => {
            let key = key_of(&head.headers)?;
            Box::pin(on_schedule(runtime, action, value, key, body)).await?
        }
        Action::Store | Action::StoreCompact => upkeep(runtime, action, body).await?,
        Action::StoreVerify | Action::StoreBackup | Action::StoreExport => {
            UpkeepMark::set_in(&head.extensions);
            upkeep(runtime, action, body).await?
        }
        Action::BulkStop => {
            let ReasonBody { reason } = parse(body)?;
            runtime.attach_bulk(value)?.stop(&reason).await?;
            recorded()
        }
    };
    Ok(body.respond(&served.redaction))
}

/// Tells the caller's role, and exchanges its token for a cookie that scripts cannot read.
fn session(asked: Asked<'_>, is_end: bool) -> Response {
    let mut response = object([("role", asked.role.name().into())]).respond(&Redaction::everything());
    for cookie in asked.access.set_cookie(asked.head, is_end) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

fn metrics_answer(runtime: &Runtime) -> Response {
    let text = HeaderValue::from_static(MEDIA_TYPE);
    ([(header::CONTENT_TYPE, text)], metrics(runtime)).into_response()
}

/// The answer for a change that is in the run's history.
fn recorded() -> Json {
    object([("recorded", true.into())])
}

/// The outcome of a run, or that it has not ended, after waiting up to `wait`. A parked run is reported at once.
pub(crate) async fn result(
    runtime: &Runtime,
    described: InstanceDescription,
    wait: Duration,
) -> Result<Json, Problem> {
    let run = described.run;
    let with = |outcome: &str, name, value: Json| {
        object([("run", run.into()), ("outcome", outcome.into()), (name, value)])
    };
    let has_ended = described.status == InstanceStatus::Finished;
    let reason = described.parked.as_ref().map(park_reason);
    let is_delayed = described.status == InstanceStatus::Delayed;
    if !has_ended && !is_delayed && (described.status == InstanceStatus::Parked || reason.is_some()) {
        return Ok(with("parked", "reason", reason.into()));
    }
    let running = || object([("run", run.into()), ("outcome", "running".into())]);
    if !has_ended && wait.is_zero() {
        return Ok(running());
    }
    let handle = runtime.attach_described(&described);
    let ended = match has_ended {
        true => handle.result().await,
        false => match within(runtime.host().as_ref(), wait, handle.result()).await {
            Some(ended) => ended,
            None => return Ok(running()),
        },
    };
    Ok(match ended {
        Ok(value) => with("completed", "result", (&value).into()),
        Err(ResultError::Failed(failure)) => with("failed", "message", failure.message.into()),
        Err(ResultError::Cancelled(failure)) => with("cancelled", "message", failure.message.into()),
        Err(ResultError::Terminated { reason }) => with("terminated", "message", reason.into()),
        Err(ResultError::TimedOut(timeout)) => with("timed-out", "timeout", timeout.as_str().into()),
        Err(ResultError::Parked(reason)) => with("parked", "reason", park_reason(&reason)),
        Err(ResultError::Run(error)) => return Err(error.into()),
        Err(error) => return Err(Problem::new("unknown", error.to_string())),
    })
}

/// The run with these 32 hexadecimal digits.
pub(crate) fn run(text: &str) -> Result<RunId, Problem> {
    let is_run = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let bits = u128::from_str_radix(text, 16).ok().filter(|_| is_run);
    bits.and_then(RunId::from_bits)
        .ok_or_else(|| Problem::new("invalid-id", format!("{text:?} is no run")))
}
