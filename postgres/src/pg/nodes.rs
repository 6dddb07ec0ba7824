//! The connection for the nodes of a store: which have joined, how far each has come, and which are dead.

use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Partition, Timestamp};
use millrun_persistence::{NodeKey, NodeSeen, NodeTerms, NodesSeen};
use tokio_postgres::types::ToSql;

use super::connection::{Connection, get};
use super::reader::check_place;
use super::values::{long, number, partition, time};
use super::{PgServer, tables};
use crate::server::{NodesSession, ServerTrouble};

/// How long a host or an answer is waited for. It is short, since a node that looks must hear soon that the look failed.
const LOOK_WAIT_MAX: Duration = Duration::from_secs(2);

/// How long `DECLARE_DEAD` waits for a flush of the dead node, until the session of that flush is ended.
const FLUSH_WAIT: &str = "SET lock_timeout = '1s'";

/// How often a node tries to announce itself while its own flush locks its row; each try takes a second.
const ANNOUNCED_MAX: u32 = 10;

/// How often the session of a dead node is ended, and its lock waited for again.
const ENDS_MAX: u32 = 10;

pub(super) struct PgNodes {
    server: Arc<PgServer>,
    connection: Connection,
    /// The term of the writer when this session was opened.
    term: i64,
}

impl PgNodes {
    pub(super) fn connect(server: &Arc<PgServer>) -> Result<Self, ServerTrouble> {
        let (mut connection, _) = Connection::open_writing(server, LOOK_WAIT_MAX)?;
        connection.batch(FLUSH_WAIT)?;
        let known = *server.known();
        check_place(server, &mut connection, known)?;
        Ok(Self {
            server: Arc::clone(server),
            connection,
            term: known.term,
        })
    }
}

impl NodesSession for PgNodes {
    fn is_outdated(&self) -> bool {
        self.server.known().term != self.term
    }

    fn announce(&mut self, terms: NodeTerms) -> Result<(), ServerTrouble> {
        let server = Arc::clone(&self.server);
        let lease = long(u64::try_from(terms.lease.as_micros()).unwrap_or(u64::MAX)).max(1);
        let values: [&(dyn ToSql + Sync); 4] = [&server.node, &server.holder, &lease, &terms.claims];
        let mut announced = Err(ServerTrouble::Refused(
            "a flush holds the row of the node".to_owned(),
        ));
        for _ in 0..ANNOUNCED_MAX {
            announced = self.connection.first(tables::ANNOUNCE, &values);
            // A long flush of this node itself is waited for.
            if !matches!(announced, Err(ServerTrouble::Refused(_))) {
                break;
            }
        }
        match announced? {
            Some(_) => Ok(()),
            None => Err(ServerTrouble::Failed(
                "the node has no row any more: it was declared dead".to_owned(),
            )),
        }
    }

    fn look(&mut self) -> Result<NodesSeen, ServerTrouble> {
        // The owners are read first: the nodes read then have joined no later, and partitions that none of them owns are
        // free.
        let mut holders = Vec::new();
        for row in self.connection.rows(tables::HOLDERS, &[])? {
            let parts: Vec<i16> = get(&row, 1)?;
            let parts = parts.into_iter().map(partition).collect::<Result<Vec<_>, _>>()?;
            holders.push((get::<i64>(&row, 0)?, parts));
        }
        let mut seen = NodesSeen::default();
        for row in self.connection.rows(tables::NODES, &[])? {
            let (name, holder): (&str, i64) = (get(&row, 0)?, get(&row, 1)?);
            let name = name.strip_prefix(tables::NODE_PREFIX).unwrap_or(name);
            let key = NodeKey::new(name, holder.cast_unsigned());
            let owned = holders.extract_if(.., |(of, _)| *of == holder);
            let owned: Vec<Partition> = owned.flat_map(|(_, parts)| parts).collect();
            let beat = get::<i64>(&row, 2)?.cast_unsigned();
            let mut node = NodeSeen::new(key, beat, owned);
            let (lease, claims) = (number(get(&row, 3)?), get(&row, 4)?);
            // A node that has announced no terms has none.
            if lease > 0 {
                node = node.with_terms(NodeTerms::new(Duration::from_micros(lease), claims));
            }
            seen.nodes.push(node);
        }
        seen.free = holders.into_iter().flat_map(|(_, parts)| parts).collect();
        seen.free.sort_unstable();
        Ok(seen)
    }

    fn time(&mut self) -> Result<Timestamp, ServerTrouble> {
        Ok(time(get(&self.connection.one(tables::TIME, &[])?, 0)?))
    }

    fn declare_dead(&mut self, node: &NodeKey) -> Result<(), ServerTrouble> {
        let name = format!("{}{}", tables::NODE_PREFIX, node.name());
        let holder = node.number().cast_signed();
        let values: [&(dyn ToSql + Sync); 2] = [&name, &holder];
        let mut refused = ServerTrouble::Refused("the node holds its row".to_owned());
        for _ in 0..ENDS_MAX {
            match self.connection.rows(tables::DECLARE_DEAD, &values) {
                Ok(_) => return Ok(()),
                Err(error @ ServerTrouble::Refused(_)) => refused = error,
                Err(error) => return Err(error),
            }
            // A flush of the dead node is under way and does not end.
            let Some(row) = self.connection.first(tables::SESSION_OF, &values)? else {
                return Ok(());
            };
            let (pid, started): (i32, String) = (get(&row, 0)?, get(&row, 1)?);
            tracing::warn!(%node, "the session of a node that was declared dead is ended");
            let schema = &self.server.address.schema;
            self.connection
                .rows(tables::END_SESSION, &[&pid, &started, schema])?;
        }
        Err(refused)
    }
}
