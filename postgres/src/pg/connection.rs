//! One connection. It is driven only while its thread waits for an answer.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use millrun_core::Timestamp;
use millrun_persistence::Durability;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_postgres::error::DbError;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row, Statement};

use super::{BackendName, PgServer, tables};
use crate::server::{ServerTrouble, ToldByNodes};

/// A connection, and its prepared statements.
pub(super) struct Connection {
    client: Client,
    statements: HashMap<&'static str, Statement>,
    schema: String,
    answer_wait_max: Duration,
    /// Whether the server gives a statement up when this side does.
    is_bounded: bool,
    heard: Arc<HeardFromServer>,
    // Dropped last, since it drives the connection.
    runtime: Runtime,
}

/// Settings by which the server notices within about 20 seconds that a client is gone, also during a statement.
const PEER_SETTINGS: [&str; 5] = [
    "SET tcp_keepalives_idle = 10",
    "SET tcp_keepalives_interval = 3",
    "SET tcp_keepalives_count = 3",
    "SET tcp_user_timeout = 20000",
    "SET client_connection_check_interval = '5s'",
];

/// How long the first row of a whole table is waited for: the server may read much of the table before it sends one. The
/// operating system notices if the server is gone.
const TABLE_WAIT_MAX: Duration = Duration::from_secs(600);

/// How many addresses of a host, one of each family, are tried within the time limits.
const ADDRESSES_OF_HOST: u32 = 2;

/// Unrequested messages of the server.
#[derive(Debug, Default)]
struct HeardFromServer {
    /// Whether the server has stopped waiting for its standby.
    is_unreplicated: AtomicBool,
    /// The server process of this session, whose own notifications do not count.
    pid: AtomicI32,
    /// Notified when another session has sent something.
    told: Notify,
    /// Whether that was about mail, or about a node that has left.
    is_of_mail: AtomicBool,
    is_of_nodes: AtomicBool,
}

/// The notification that a node has left; an empty one is about mail.
pub(super) const LEFT: &str = "left";

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("{}", told(.0))]
    Refused(#[from] tokio_postgres::Error),
    #[error("there was no answer within {} ms", .0.as_millis())]
    Late(Duration),
    /// The process has no descriptors left, say.
    #[error("this process cannot open a connection: {0}")]
    NoRuntime(io::Error),
}

/// Values of a statement.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// What a server tells of itself.
#[derive(Clone, Debug)]
pub(super) struct ServerFacts {
    pub(super) version: i32,
    pub(super) version_text: String,
    pub(super) is_standby: bool,
    pub(super) is_read_only: bool,
    pub(super) syncs: bool,
    pub(super) backend: BackendName,
    /// Whether two questions were answered by different sessions.
    pub(super) is_pooled: bool,
    pub(super) now: Timestamp,
}

impl Connection {
    /// Connects, without checking the server. The hosts are tried in order, each with a time limit of its own, so that one
    /// that does not answer does not keep the others from being tried.
    pub(super) fn open(server: &PgServer) -> Result<Self, ConnectError> {
        Self::open_within(server, Duration::MAX)
    }

    /// As [`open`](Self::open), with a limit for each host and for each answer.
    pub(super) fn open_within(server: &PgServer, wait_max: Duration) -> Result<Self, ConnectError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ConnectError::NoRuntime)?;
        let mut connected = Err(ConnectError::Late(Duration::ZERO));
        let heard = Arc::default();
        for host in &server.address.connect {
            connected = runtime.block_on(connect(host, server, wait_max, &heard));
            if connected.is_ok() {
                break;
            }
        }
        Ok(Self {
            client: connected?,
            statements: HashMap::new(),
            schema: server.address.schema.clone(),
            answer_wait_max: server.answer_wait_max.min(wait_max),
            is_bounded: false,
            heard,
            runtime,
        })
    }

    /// Connects, for an opening that has the store, to a server that takes writes, and limits the time of statements there.
    /// `wait_max` limits each host and each answer.
    pub(super) fn open_writing(
        server: &PgServer,
        wait_max: Duration,
    ) -> Result<(Self, ServerFacts), ServerTrouble> {
        let connection = Self::open_within(server, wait_max);
        let mut connection = connection.map_err(|error| ServerTrouble::Lost(error.to_string()))?;
        let facts = connection.set_up(server.durability, true)?;
        // Another server than before may answer, and may become a primary in a moment.
        if facts.is_standby || facts.is_read_only {
            return Err(ServerTrouble::Lost("the server takes no writes".to_owned()));
        }
        connection.bound_statements()?;
        Ok((connection, facts))
    }

    /// Sets the session's settings, so that they do not depend on the user's or the database's.
    pub(super) fn set_up(
        &mut self,
        durability: Durability,
        writes: bool,
    ) -> Result<ServerFacts, ServerTrouble> {
        // `remote_apply` may be set by the configuration, and is stronger than `on`.
        let commit = match durability {
            Durability::Durable => {
                "SELECT set_config('synchronous_commit', \
                 CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false);"
            }
            // A crash of the server loses what three rounds of its WAL writer have not written.
            Durability::Eventual { window } => &format!(
                "SELECT set_config('synchronous_commit', CASE WHEN 3 * setting::bigint <= {} THEN 'off' ELSE 'on' END, \
                 false) FROM pg_settings WHERE name = 'wal_writer_delay';",
                window.as_millis()
            ),
            _ => "SET synchronous_commit = off;",
        };
        // Forces index scans, also where statistics are old: only these return the first rows at once.
        let plans = "SET enable_seqscan = off; SET enable_mergejoin = off; SET enable_hashjoin = off; SET enable_sort = off;";
        // The writer's plans are made once, and must still be good when the tables have grown.
        let plans = match writes {
            true => format!("{plans} SET plan_cache_mode = force_generic_plan;"),
            false => plans.to_owned(),
        };
        let nonce = format!("{:p}-{}", self, std::process::id());
        self.batch(&format!(
            "SET client_min_messages = warning; SET statement_timeout = 0; SET lock_timeout = 0; \
             SET idle_in_transaction_session_timeout = 0; SET idle_session_timeout = 0; SET default_transaction_isolation = 'read committed'; \
             SET default_transaction_deferrable = off; SET jit = off; SET search_path = pg_catalog; {commit} {plans} \
             SELECT set_config('millrun.session', '{nonce}', false);"
        ))?;
        self.notice_lost_peers()?;
        let row = self.one(
            "SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery(), \
             current_setting('transaction_read_only') = 'on', current_setting('fsync') = 'on', pg_backend_pid(), \
             (SELECT (extract(epoch FROM backend_start) * 1000000)::bigint::text FROM pg_stat_activity \
             WHERE pid = pg_backend_pid()), \
             coalesce(current_setting('millrun.session', true), ''), \
             (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
            &[],
        )?;
        let session: String = get(&row, 7)?;
        self.heard.pid.store(get(&row, 5)?, Ordering::Relaxed);
        Ok(ServerFacts {
            version: get(&row, 0)?,
            version_text: get(&row, 1)?,
            is_standby: get(&row, 2)?,
            is_read_only: get(&row, 3)?,
            syncs: get(&row, 4)?,
            backend: BackendName {
                pid: get(&row, 5)?,
                started: get(&row, 6)?,
            },
            is_pooled: session != nonce,
            now: super::values::time(get(&row, 8)?),
        })
    }

    /// Makes the server notice lost clients: otherwise their sessions, and the lock of the store, would stay for two hours.
    fn notice_lost_peers(&mut self) -> Result<(), ServerTrouble> {
        match self.batch(&PEER_SETTINGS.join(";")) {
            // Some systems and poolers lack some of these settings.
            Err(ServerTrouble::Failed(_)) => {}
            done => return done,
        }
        for setting in PEER_SETTINGS {
            match self.batch(setting) {
                Err(ServerTrouble::Failed(why)) => {
                    tracing::debug!(setting, problem = why, "the server does not take a setting");
                }
                done => done?,
            }
        }
        Ok(())
    }

    /// Makes the server give up a statement when its answer is not awaited any more: otherwise statements that wait for a
    /// lock would pile up. A wait within a commit, for a standby say, is not limited: the server ends the limit before the
    /// commit.
    pub(super) fn bound_statements(&mut self) -> Result<(), ServerTrouble> {
        self.is_bounded = true;
        let millis = i32::try_from(self.answer_wait_max.as_millis()).unwrap_or(i32::MAX);
        self.batch(&format!("SET statement_timeout = {millis}"))
    }

    /// Waits until another session has sent a notification, `wake` wakes, or the time is over. Returns what was notified.
    pub(super) fn wait_told(&mut self, wake: &Notify, wait_max: Duration) -> ToldByNodes {
        let heard = &self.heard;
        let waited = async {
            tokio::select! {
                () = heard.told.notified() => {}
                () = wake.notified() => {}
            }
        };
        // A timeout means that no notification came.
        drop(self.runtime.block_on(async { timeout(wait_max, waited).await }));
        ToldByNodes {
            has_mail: heard.is_of_mail.swap(false, Ordering::Relaxed),
            has_left: heard.is_of_nodes.swap(false, Ordering::Relaxed),
        }
    }

    /// Runs statements without values, in one transaction.
    pub(super) fn batch(&mut self, sql: &str) -> Result<(), ServerTrouble> {
        self.batch_within(sql, self.answer_wait_max)
    }

    /// As [`batch`](Self::batch), for statements that read or write whole tables. The caller has not limited their time.
    pub(super) fn batch_of_tables(&mut self, sql: &str) -> Result<(), ServerTrouble> {
        self.batch_within(sql, self.answer_wait_max.max(TABLE_WAIT_MAX))
    }

    fn batch_within(&mut self, sql: &str, wait_max: Duration) -> Result<(), ServerTrouble> {
        let client = &self.client;
        let done = async { client.batch_execute(sql).await };
        wait(&self.runtime, wait_max, done)
    }

    fn statement(&mut self, sql: &'static str) -> Result<Statement, ServerTrouble> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let text = tables::of_schema(sql, &self.schema);
        let client = &self.client;
        let prepared = async { client.prepare(&text).await };
        let statement = wait(&self.runtime, self.answer_wait_max, prepared)?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    pub(super) fn rows(&mut self, sql: &'static str, values: Values<'_>) -> Result<Vec<Row>, ServerTrouble> {
        let statement = self.statement(sql)?;
        let client = &self.client;
        let rows = async { client.query(&statement, values).await };
        let rows = wait(&self.runtime, self.answer_wait_max, rows)?;
        if self.heard.is_unreplicated.swap(false, Ordering::Relaxed) {
            // The next session raises the term, and the commit of that waits for the standby.
            let why = "the server was told not to wait for its standby".to_owned();
            return Err(ServerTrouble::Lost(why));
        }
        Ok(rows)
    }

    pub(super) fn first(
        &mut self,
        sql: &'static str,
        values: Values<'_>,
    ) -> Result<Option<Row>, ServerTrouble> {
        Ok(self.rows(sql, values)?.into_iter().next())
    }

    pub(super) fn one(&mut self, sql: &'static str, values: Values<'_>) -> Result<Row, ServerTrouble> {
        let row = self.first(sql, values)?;
        row.ok_or_else(|| ServerTrouble::Failed("a row of the store is missing".to_owned()))
    }

    /// Passes on each row of a whole table as it arrives. The first row, and the whole answer, may take long.
    pub(super) fn each(
        &mut self,
        sql: &'static str,
        values: Values<'_>,
        each: &mut dyn FnMut(Row) -> Result<(), ServerTrouble>,
    ) -> Result<(), ServerTrouble> {
        let was_bounded = std::mem::take(&mut self.is_bounded);
        if was_bounded {
            self.batch("SET statement_timeout = 0")?;
        }
        let read = self.each_unbounded(sql, values, each);
        // The session's limit is set again, also if a row could not be read.
        match &read {
            Err(ServerTrouble::Lost(_)) => {}
            _ if was_bounded => self.bound_statements()?,
            _ => {}
        }
        read
    }

    fn each_unbounded(
        &mut self,
        sql: &'static str,
        values: Values<'_>,
        each: &mut dyn FnMut(Row) -> Result<(), ServerTrouble>,
    ) -> Result<(), ServerTrouble> {
        let statement = self.statement(sql)?;
        let (client, wait_max) = (&self.client, self.answer_wait_max.max(TABLE_WAIT_MAX));
        self.runtime.block_on(async {
            let values = values.iter().copied();
            let rows = timeout(wait_max, client.query_raw(&statement, values)).await;
            let rows = rows.map_err(|_| late(wait_max))?.map_err(trouble)?;
            pin_mut!(rows);
            loop {
                match timeout(wait_max, rows.next()).await {
                    Ok(Some(row)) => each(row.map_err(trouble)?)?,
                    Ok(None) => return Ok(()),
                    Err(_) => return Err(late(wait_max)),
                }
            }
        })
    }
}

/// Connects to one host. Requests are sent when the runtime runs.
async fn connect(
    host: &tokio_postgres::Config,
    server: &PgServer,
    wait_max: Duration,
    heard: &Arc<HeardFromServer>,
) -> Result<Client, ConnectError> {
    // A name may have several addresses, and each may take the configured time.
    let reached_within = host.get_connect_timeout().copied().unwrap_or_default() * ADDRESSES_OF_HOST;
    let wait_max = wait_max.min(server.answer_wait_max + reached_within);
    let connected = timeout(wait_max, host.connect(server.tls.clone())).await;
    let (client, mut connection) = connected.map_err(|_| ConnectError::Late(wait_max))??;
    let heard = Arc::clone(heard);
    tokio::spawn(async move {
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            match message {
                Ok(AsyncMessage::Notice(notice)) if is_of_standby(&notice) => {
                    heard.is_unreplicated.store(true, Ordering::Relaxed);
                }
                Ok(AsyncMessage::Notification(told))
                    if told.process_id() != heard.pid.load(Ordering::Relaxed) =>
                {
                    let told_of = match told.payload() {
                        LEFT => &heard.is_of_nodes,
                        _ => &heard.is_of_mail,
                    };
                    told_of.store(true, Ordering::Relaxed);
                    heard.told.notify_one();
                }
                Ok(_) => {}
                // When the connection ends, each waiting request gets an error of its own.
                Err(error) => {
                    tracing::debug!(%error, "a connection to the database has ended");
                    return;
                }
            }
        }
    });
    Ok(client)
}

/// Whether a notice says that a commit was done here without waiting for its standby: a cancellation or the end of the
/// session ends that wait, and the commit succeeds with a warning. The text may be translated, and other notices share its
/// code.
fn is_of_standby(notice: &DbError) -> bool {
    notice.routine() == Some("SyncRepWaitForLSN")
}

/// A value of a row.
pub(super) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    at: usize,
) -> Result<T, ServerTrouble> {
    row.try_get(at)
        .map_err(|error| ServerTrouble::Failed(told(&error)))
}

fn wait<T>(
    runtime: &Runtime,
    wait_max: Duration,
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, ServerTrouble> {
    match runtime.block_on(async { timeout(wait_max, answer).await }) {
        Ok(answer) => answer.map_err(trouble),
        Err(_) => Err(late(wait_max)),
    }
}

fn late(wait_max: Duration) -> ServerTrouble {
    ServerTrouble::Lost(format!("there was no answer within {} ms", wait_max.as_millis()))
}

/// The text of an error, without values of rows, which may be confidential.
pub(super) fn told(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    let source = std::error::Error::source(error);
    match source {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// What an error of a statement means.
pub(super) fn trouble(error: tokio_postgres::Error) -> ServerTrouble {
    let said = told(&error);
    let Some(code) = error.code().map(|code| code.code().to_owned()) else {
        let is_lost = error.is_closed()
            || std::error::Error::source(&error).is_some_and(|source| source.is::<io::Error>())
                && !said.starts_with("error encoding");
        return match is_lost {
            true => ServerTrouble::Lost(said),
            false => ServerTrouble::Failed(said),
        };
    };
    trouble_of(&code, said)
}

/// What a code of a server means: <https://www.postgresql.org/docs/15/errcodes-appendix.html>.
fn trouble_of(code: &str, said: String) -> ServerTrouble {
    match code {
        "23505" => ServerTrouble::Duplicate(said),
        // The server ends, starts, or has become a standby; or a pooler has lost the prepared statement.
        "57P01" | "57P02" | "57P03" | "57P05" | "25006" | "26000" => ServerTrouble::Lost(said),
        code if code.starts_with("08") => ServerTrouble::Lost(said),
        // Nothing was done: the statement was cancelled, conflicts with another, or the server has no room.
        "40001" | "40P01" | "57014" | "55P03" => ServerTrouble::Refused(said),
        code if code.starts_with("53") => ServerTrouble::Refused(said),
        _ => ServerTrouble::Failed(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_whether_anything_was_done_and_may_be_tried_again() {
        let lost = |code| matches!(trouble_of(code, String::new()), ServerTrouble::Lost(_));
        let refused = |code| matches!(trouble_of(code, String::new()), ServerTrouble::Refused(_));
        let duplicate = |code| matches!(trouble_of(code, String::new()), ServerTrouble::Duplicate(_));
        assert!(["08006", "57P01", "57P03", "25006"].into_iter().all(lost));
        assert!(["40P01", "53100", "53300", "57014"].into_iter().all(refused));
        assert!(duplicate("23505"));
        for code in ["23502", "42501", "42P01", "22021", "XX001"] {
            assert!(!lost(code) && !refused(code) && !duplicate(code), "{code}");
        }
    }
}
