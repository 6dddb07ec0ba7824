//! Opens a store: checks the server and the schema, takes the store for this process, and reads its live runs and topics.
//!
//! ```text
//!   connect ─► version, standby, rights ─► tables (made, or checked) ─► lock ─► format ─► term ─► facts
//! ```
//!
//! Nothing is changed in a schema that is not a store or has a later format, nor in a store that other processes have open:
//! an upgrade takes the lock for a process alone, even if the store is joined as a node.
//!
//! An opening changes nodes and ownership in one transaction, so a process that is killed in the middle has changed nothing.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use millrun_core::{Epoch, RunId, Sequence, Timestamp};
use millrun_persistence::{
    Durability, NodeKey, StoredTopicId, StoredTopicName, TopicNumber, TopicRegister, TopicRetention,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connection::{ConnectError, Connection, ServerFacts, get};
use super::reader::stored_head;
use super::tables::{self, FORMAT};
use super::tls::TlsMaker;
use super::values::{IdValue, number, time};
use super::writer::{PgWriter, age_of};
use super::{PgServer, StorePlace};
use crate::address::{Address, TlsDemand};
use crate::config::PostgresConfig;
use crate::error::PostgresOpenError;
use crate::heads::LiveHead;
use crate::journal::OpeningNumbers;
use crate::server::{ServerTrouble, StoredHead, WriterSession};

const VERSION_MIN: i32 = 150_000;
/// The pause between two tries for the lock of a store that another session has.
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// What an opening reads of its store.
pub(crate) struct StoreFacts {
    pub(crate) term: i64,
    pub(crate) marker: i64,
    /// Above all epochs that were granted before this opening, and below all that it grants.
    pub(crate) epoch: Epoch,
    /// The first retained finished run, the next number, the number of retained runs, and their bytes.
    pub(crate) finished: (u64, u64, u64, u64),
    /// The server's time.
    pub(crate) now: Timestamp,
    /// When the last finished run closed.
    pub(crate) last_closed: Timestamp,
    pub(crate) live: Vec<(RunId, LiveHead)>,
    pub(crate) topics: TopicRegister,
    /// The number of the store.
    pub(crate) store_number: u64,
    /// Live runs whose last turn is damaged or missing.
    pub(crate) damaged: Vec<RunId>,
    /// The node as which the store was joined; `None` if this process has it to itself.
    pub(crate) node: Option<NodeKey>,
}

/// A store that was opened.
pub(crate) struct OpenStore {
    pub(crate) server: Arc<PgServer>,
    pub(crate) writer: Box<dyn WriterSession>,
    pub(crate) facts: StoreFacts,
}

/// The address and the rights of an opening under way.
struct StoreDoor<'a> {
    address: &'a Address,
    config: &'a PostgresConfig,
}

/// Opens the store at an address, or makes a new one. Takes it for this process, or joins it as a node of this name.
pub(crate) fn open(
    address: &Address,
    config: &PostgresConfig,
    node: Option<String>,
    OpeningNumbers { holder, store }: OpeningNumbers,
) -> Result<OpenStore, PostgresOpenError> {
    let door = StoreDoor { address, config };
    let tls = TlsMaker::new(&address.tls).map_err(|problem| PostgresOpenError::Tls {
        address: address.shown().to_owned(),
        problem,
    })?;
    let server = Arc::new(PgServer {
        address: address.clone(),
        tls,
        durability: config.journal.durability,
        answer_wait_max: config.answer_wait_max,
        node: match &node {
            Some(name) => format!("{}{name}", tables::NODE_PREFIX),
            None => tables::NODE.to_owned(),
        },
        is_shared: node.is_some(),
        holder,
        sessions: Mutex::default(),
        known: Mutex::default(),
    });
    let mut connection = Connection::open(&server).map_err(|error| door.unreachable(&error))?;
    let facts = connection
        .set_up(server.durability, true)
        .map_err(|error| door.refused(error))?;
    door.check(&facts)?;
    door.make_tables(&mut connection, store)?;
    let is_old = door.format(&mut connection)? < FORMAT;
    if is_old {
        // Processes of the former release write what the upgrade changes, so these are locked out.
        door.lock(&mut connection, &server, tables::LOCK)?;
        door.upgrade(&mut connection)?;
    }
    door.lock(&mut connection, &server, server.lock_statement())?;
    if is_old && server.is_shared {
        let schema = &address.schema;
        let unlocked = connection.rows(tables::UNLOCK, &[schema]);
        unlocked.map_err(|error| door.refused(error))?;
    }
    // Another process may have upgraded the store before this one had the lock.
    if door.format(&mut connection)? < FORMAT {
        return Err(door.corrupted("its format went back while it was opened"));
    }
    server.sessions().push(facts.backend.clone());
    let found = match node {
        None => door.facts(&mut connection, &server, &facts)?,
        Some(name) => door.join(
            &mut connection,
            &server,
            &facts,
            NodeKey::new(&name, holder.cast_unsigned()),
        )?,
    };
    *server.known() = StorePlace {
        term: found.term,
        marker: found.marker,
    };
    let writer = Box::new(PgWriter::of(&server, connection, facts.backend));
    Ok(OpenStore {
        server,
        writer,
        facts: found,
    })
}

impl StoreDoor<'_> {
    fn at(&self) -> String {
        self.address.shown().to_owned()
    }

    /// The error for a connection that was not made.
    fn unreachable(&self, error: &ConnectError) -> PostgresOpenError {
        let (address, problem) = (self.at(), error.to_string());
        let ConnectError::Refused(error) = error else {
            return PostgresOpenError::NoServer { address, problem };
        };
        if let Some(code) = error.code() {
            return match code.code() {
                "28P01" | "28000" => PostgresOpenError::Login { address, problem },
                "3D000" => PostgresOpenError::NoDatabase { address, problem },
                "42501" => PostgresOpenError::Grants { address, problem },
                code if code.starts_with("57P") || code.starts_with("53") => {
                    PostgresOpenError::NoServer { address, problem }
                }
                _ => PostgresOpenError::Server { address, problem },
            };
        }
        let said = error.to_string();
        let wants_tls = self.address.tls != TlsDemand::Plain;
        if wants_tls && (said.contains("TLS") || said.contains("tls")) {
            return PostgresOpenError::Tls { address, problem };
        }
        if said.contains("session does not permit writes") || problem.contains("does not allow writes") {
            return PostgresOpenError::Standby { address };
        }
        if problem.contains("password") || problem.contains("authentication") {
            return PostgresOpenError::Login { address, problem };
        }
        PostgresOpenError::NoServer { address, problem }
    }

    /// The error for a statement that was not performed.
    fn refused(&self, error: ServerTrouble) -> PostgresOpenError {
        let (address, problem) = (self.at(), error.to_string());
        match error {
            ServerTrouble::Lost(_) => PostgresOpenError::NoServer { address, problem },
            ServerTrouble::Failed(said) if said.ends_with("(42501)") => {
                PostgresOpenError::Grants { address, problem }
            }
            _ => PostgresOpenError::Server { address, problem },
        }
    }

    fn check(&self, facts: &ServerFacts) -> Result<(), PostgresOpenError> {
        let address = self.at();
        let is_durable = self.config.journal.durability == Durability::Durable;
        if facts.version < VERSION_MIN {
            let found = facts.version_text.clone();
            Err(PostgresOpenError::TooOld { address, found })
        } else if facts.is_standby {
            Err(PostgresOpenError::Standby { address })
        } else if facts.is_read_only {
            Err(PostgresOpenError::ReadOnly { address })
        } else if facts.is_pooled {
            Err(PostgresOpenError::Pooler { address })
        } else if is_durable && !facts.syncs {
            Err(PostgresOpenError::NoSync { address })
        } else {
            Ok(())
        }
    }

    /// Makes the tables in an empty schema. Refuses a schema with other tables.
    fn make_tables(&self, connection: &mut Connection, number: i64) -> Result<(), PostgresOpenError> {
        let schema = &self.address.schema;
        let (has_schema, has_tables, is_store) = self.look_at_schema(connection)?;
        if has_tables && !is_store {
            return Err(PostgresOpenError::Foreign { address: self.at() });
        }
        if !is_store {
            // One process at a time: the second finds what the first has made.
            let lock = "SELECT pg_advisory_xact_lock(1835625580, 0);";
            let create = match has_schema {
                true => String::new(),
                false => tables::of_schema("CREATE SCHEMA {s};", schema),
            };
            let tables = tables::of_schema(tables::CREATE, schema);
            let tables = tables.replace("{number}", &number.to_string());
            if let Err(error) = connection.batch(&format!("{lock}{create}{tables}")) {
                let (_, _, is_store) = self.look_at_schema(connection)?;
                if !is_store {
                    return Err(self.refused(error));
                }
            }
        }
        Ok(())
    }

    /// The format of the store: this release's or an earlier one.
    fn format(&self, connection: &mut Connection) -> Result<i32, PostgresOpenError> {
        let format = connection.first("SELECT millrun_format FROM {s}.store", &[]);
        let format = format.map_err(|error| self.refused(error))?;
        let Some(format) = format else {
            return Err(self.corrupted("the table store is empty"));
        };
        let found: i32 = get(&format, 0).map_err(|error| self.refused(error))?;
        match found {
            1..=FORMAT => Ok(found),
            _ if found > FORMAT => Err(PostgresOpenError::NewerFormat {
                address: self.at(),
                found,
                supported: FORMAT,
            }),
            _ => Err(self.corrupted("its format is none")),
        }
    }

    /// Upgrades the store to this format. The caller has it to itself.
    fn upgrade(&self, connection: &mut Connection) -> Result<(), PostgresOpenError> {
        for (from, upgrade) in (1..).zip(tables::UPGRADES) {
            if self.format(connection)? == from {
                let upgrade = tables::of_schema(upgrade, &self.address.schema);
                let upgraded = connection.batch_of_tables(&upgrade);
                upgraded.map_err(|error| self.refused(error))?;
            }
        }
        Ok(())
    }

    /// Whether the schema exists, whether it contains anything, and whether that is a store.
    fn look_at_schema(&self, connection: &mut Connection) -> Result<(bool, bool, bool), PostgresOpenError> {
        let row = connection.one(
            "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1), \
             EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1), \
             EXISTS (SELECT FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
                 JOIN pg_namespace n ON n.oid = c.relnamespace \
                 WHERE n.nspname = $1 AND c.relname = 'store' AND a.attname = 'millrun_format')",
            &[&self.address.schema],
        );
        let row = row.map_err(|error| self.refused(error))?;
        let found = (|| Ok((get(&row, 0)?, get(&row, 1)?, get(&row, 2)?)))();
        found.map_err(|error| self.refused(error))
    }

    /// Takes the lock that keeps other processes out while the connection lives. A node keeps out only processes that want
    /// the store to themselves.
    fn lock(
        &self,
        connection: &mut Connection,
        server: &PgServer,
        statement: &'static str,
    ) -> Result<(), PostgresOpenError> {
        let began = Instant::now();
        let schema = &self.address.schema;
        loop {
            let row = connection.one(statement, &[schema, &server.node]);
            let row = row.map_err(|error| self.refused(error))?;
            let [is_free, is_unnamed]: [bool; 2] = [
                get(&row, 0).map_err(|error| self.refused(error))?,
                get(&row, 1).map_err(|error| self.refused(error))?,
            ];
            if is_free && is_unnamed {
                return Ok(());
            }
            if began.elapsed() >= self.config.open_wait_max {
                if is_free {
                    let name = server.node.trim_start_matches(tables::NODE_PREFIX).to_owned();
                    return Err(PostgresOpenError::NodeNameInUse {
                        address: self.at(),
                        name,
                    });
                }
                break;
            }
            thread::sleep(LOCK_PAUSE);
        }
        let holder = connection.first(tables::LOCK_HOLDER, &[schema]);
        let by = holder.ok().flatten().and_then(|row| {
            let (pid, from, name): (i32, String, String) =
                (get(&row, 0).ok()?, get(&row, 1).ok()?, get(&row, 2).ok()?);
            Some(format!("session {pid} of the server, {name:?} from {from}"))
        });
        Err(PostgresOpenError::AlreadyOpen {
            address: self.at(),
            by: by.unwrap_or_else(|| "another session of the server".to_owned()),
        })
    }

    fn corrupted(&self, cause: &str) -> PostgresOpenError {
        PostgresOpenError::Corrupted {
            address: self.at(),
            cause: cause.to_owned(),
        }
    }

    fn missing(&self, what: &str) -> PostgresOpenError {
        self.corrupted(&format!("the row of the {what} is missing"))
    }

    /// Counts an opening. Returns the number of openings, the first retained finished run, and the number of the store.
    fn count_opening(&self, connection: &mut Connection) -> Result<(u32, i64, u64), PostgresOpenError> {
        let refused = |error| self.refused(error);
        let opening = connection.first(tables::OPENING, &[]).map_err(refused)?;
        let opening = opening.ok_or_else(|| self.missing("store"))?;
        let [openings, first, number] = [0, 1, 2].map(|at| get::<i64>(&opening, at));
        let openings = u32::try_from(openings.map_err(refused)?);
        let openings = openings.map_err(|_| self.corrupted("it counts too many openings"))?;
        let number = number.map_err(refused)?.cast_unsigned();
        Ok((openings, first.map_err(refused)?, number))
    }

    /// Joins the store as a node, which owns nothing of it yet.
    fn join(
        &self,
        connection: &mut Connection,
        server: &PgServer,
        told: &ServerFacts,
        node: NodeKey,
    ) -> Result<StoreFacts, PostgresOpenError> {
        let refused = |error| self.refused(error);
        connection.batch("BEGIN").map_err(refused)?;
        let retired = connection.rows(tables::RETIRE_ONE, &[]).map_err(refused)?;
        let session = &told.backend;
        let values: [&(dyn ToSql + Sync); 4] = [&server.node, &server.holder, &session.pid, &session.started];
        let joined = connection.first(tables::JOIN, &values).map_err(refused)?;
        let joined = joined.ok_or_else(|| self.missing("writer"))?;
        let marker = connection
            .first(tables::JOIN_MARKER, &[&server.node])
            .map_err(refused)?;
        let marker = marker.ok_or_else(|| self.missing("marker"))?;
        if !retired.is_empty() {
            // A single process had the store: it numbers runs by itself and does not count those of each partition. No node
            // has numbered or counted any since.
            connection.rows(tables::NUMBER_ON, &[]).map_err(refused)?;
            let recount = tables::of_schema(tables::RECOUNT, &self.address.schema);
            connection.batch_of_tables(&recount).map_err(refused)?;
        }
        connection.rows(tables::BURY, &[]).map_err(refused)?;
        connection.rows(tables::FORGET_GONE, &[]).map_err(refused)?;
        connection.rows(tables::FORGET_MAIL, &[]).map_err(refused)?;
        let (openings, first, store_number) = self.count_opening(connection)?;
        connection.batch("COMMIT").map_err(refused)?;
        let last_closed = connection.first(tables::LAST_CLOSED, &[]).map_err(refused)?;
        let last_closed = last_closed.map_or(Ok(0), |row| get::<i64>(&row, 0));
        let facts = StoreFacts {
            term: get(&joined, 0).map_err(refused)?,
            marker: get(&marker, 0).map_err(refused)?,
            epoch: Epoch::of(openings, 0),
            finished: (number(first), number(first), 0, 0),
            now: told.now,
            last_closed: time(last_closed.map_err(refused)?),
            live: Vec::new(),
            topics: TopicRegister::new(&self.config.journal),
            store_number,
            damaged: Vec::new(),
            node: Some(node),
        };
        connection.bound_statements().map_err(refused)?;
        Ok(facts)
    }

    /// Takes the store, and reads what a journal must know of it.
    fn facts(
        &self,
        connection: &mut Connection,
        server: &PgServer,
        told: &ServerFacts,
    ) -> Result<StoreFacts, PostgresOpenError> {
        let refused = |error| self.refused(error);
        let (session, now) = (&told.backend, told.now);
        let values: [&(dyn ToSql + Sync); 4] = [&server.node, &server.holder, &session.pid, &session.started];
        connection.batch("BEGIN").map_err(refused)?;
        let taken = connection.first(tables::TAKE, &values).map_err(refused)?;
        let taken = taken.ok_or_else(|| self.missing("writer"))?;
        let cleared = tables::of_schema(tables::TAKE_TABLES, &self.address.schema);
        connection.batch(&cleared).map_err(refused)?;
        let marker = connection
            .first(tables::MARKER, &[&server.node])
            .map_err(refused)?;
        let marker = marker.ok_or_else(|| self.missing("marker"))?;
        let (openings, first, store_number) = self.count_opening(connection)?;
        connection.batch("COMMIT").map_err(refused)?;
        let mut retained = None;
        let counted = connection.each(tables::RETAINED, &[&first], &mut |row| {
            retained = Some(row);
            Ok(())
        });
        counted.map_err(refused)?;
        let retained = retained.ok_or_else(|| self.corrupted("its finished runs cannot be counted"))?;
        let [len, bytes, next] = [0, 1, 2].map(|at| get::<i64>(&retained, at).map(number));
        let finished = (
            number(first),
            next.map_err(refused)?,
            len.map_err(refused)?,
            bytes.map_err(refused)?,
        );
        let mut facts = StoreFacts {
            term: get(&taken, 0).map_err(refused)?,
            marker: get(&marker, 0).map_err(refused)?,
            epoch: Epoch::of(openings, 0),
            finished,
            now,
            last_closed: time(get::<Option<i64>>(&retained, 3).map_err(refused)?.unwrap_or(0)),
            live: Vec::new(),
            topics: TopicRegister::new(&self.config.journal),
            store_number,
            damaged: Vec::new(),
            node: None,
        };
        let heads = connection.each(tables::HEADS, &[], &mut |row| take_head(&row, &mut facts));
        heads.map_err(refused)?;
        let mut is_in_order = true;
        let topics = connection.each(tables::TOPICS, &[], &mut |row| {
            is_in_order &= take_topic(&row, &mut facts.topics)?;
            Ok(())
        });
        topics.map_err(refused)?;
        if !is_in_order {
            return Err(self.corrupted("a row of a topic is missing"));
        }
        let ids = connection.each(tables::TOPIC_IDS, &[], &mut |row| {
            let IdValue(id) = get(&row, 2)?;
            facts.topics.restore_ids([StoredTopicId {
                number: number(get(&row, 0)?),
                topic: topic_number(get(&row, 1)?),
                id,
                sequence: Sequence::new(number(get(&row, 3)?)),
            }]);
            Ok(())
        });
        ids.map_err(refused)?;
        connection.bound_statements().map_err(refused)?;
        Ok(facts)
    }
}

/// Adds a live run that was read.
fn take_head(row: &Row, facts: &mut StoreFacts) -> Result<(), ServerTrouble> {
    let StoredHead {
        run,
        head,
        is_damaged,
    } = stored_head(row)?;
    if is_damaged {
        facts.damaged.push(run);
    }
    facts.live.extend(head.map(|head| (run, head)));
    Ok(())
}

fn topic_number(stored: i32) -> TopicNumber {
    TopicNumber::new(u32::try_from(stored).unwrap_or(u32::MAX))
}

/// Adds a topic that was read. Returns whether its number was the next one.
fn take_topic(row: &Row, topics: &mut TopicRegister) -> Result<bool, ServerTrouble> {
    let name = std::str::from_utf8(get(row, 1)?);
    let name = name.map_err(|_| ServerTrouble::Failed("the name of a topic is not text".to_owned()))?;
    let retention = TopicRetention {
        age_max: age_of(get(row, 2)?),
        bytes_max: get::<i64>(row, 3)?.cast_unsigned(),
        len_max: get::<i64>(row, 4)?.cast_unsigned(),
        unread_bytes_max: get::<i64>(row, 8)?.cast_unsigned(),
    };
    let stored = StoredTopicName {
        number: topic_number(get(row, 0)?),
        name: name.to_owned(),
        retention,
        dropped: Sequence::new(number(get(row, 5)?)),
    };
    let last = get::<Option<i64>>(row, 6)?.map(|last| Sequence::new(number(last)));
    Ok(topics.restore(stored, last, number(get(row, 7)?)))
}
