//! The tables of a store, format 5. All are in one schema, whose name replaces `{s}`.
//!
//! ```text
//!   store     one row: format, number of the store, number of openings, first finished run that is retained
//!   writer    node, term, holder (the number of the opening, 0: none), its session: who may write; what a node says of itself
//!             (its lease in microseconds, 0: nothing yet; whether it claims its share)
//!   marker    node, where its last flush has left it, what it retains of finished runs
//!   part      1,024 rows: the latest epoch of each partition, the holder that owns it (0: none), and how many finished runs
//!             are retained there, with their bytes: kept by nodes, and counted anew behind a process alone
//!   gone      holders that write nothing any more, for good: what they owned is free
//!   turn      part, run, seq (of the first record), last, frames (of `millrun_persistence::frames`)
//!   live      part, run, id of the instance           snapshot part, run, seq, folded
//!   finished  number (in the order of closing), part, run, id, times, head, kind of the last record, bytes, gone (dropped
//!             by a node)
//!   topic     number, name, retention, dropped        topic_row topic, first, len, last_at, frames: records written together
//!   topic_id  number (in the order of appending), topic, id, seq of the record
//!   mail      number (in the order of each node's posting), part, or the holder of a node that it is for (part is -1 then), body,
//!             aside (nobody could read it)
//! ```
//!
//! An opening that has the store to itself is the node `one`, and no row of `part` names it. Nodes that share the store have
//! names that begin with `n/`. A node writes only to partitions whose rows in `part` name it as the holder. Only the node
//! itself changes these rows, or another node that has raised the first one's term before. So the fence of a flush, which is
//! the node's own row, also proves that the node still owns all partitions that the flush writes to.
//!
//! Ids of instances are stored as bytes: ids may contain a zero byte, which PostgreSQL's texts do not allow.

/// Inserts the name of the schema into a statement. The name may be a word of SQL, such as `order`; it contains no quotes.
pub(super) fn of_schema(sql: &str, schema: &str) -> String {
    sql.replace("{s}", &format!("\"{schema}\""))
}

/// The newest format that this release reads and writes.
pub(super) const FORMAT: i32 = 5;

macro_rules! recount {
    () => {
        "
UPDATE {s}.part p SET len = coalesce(c.len, 0), bytes = coalesce(c.bytes, 0)
FROM {s}.part q LEFT JOIN (
    SELECT f.part, count(*) AS len, sum(f.bytes)::bigint AS bytes FROM {s}.finished f
    WHERE NOT f.gone AND f.number >= (SELECT first FROM {s}.store) GROUP BY f.part) c ON c.part = q.part
WHERE p.part = q.part;"
    };
}

macro_rules! mail_tables {
    () => {
        "
CREATE TABLE {s}.mail (
    number bigint PRIMARY KEY, part smallint NOT NULL, holder bigint NOT NULL, body bytea NOT NULL,
    aside boolean NOT NULL DEFAULT false);
ALTER TABLE {s}.mail ALTER body SET STORAGE EXTERNAL;
CREATE SEQUENCE {s}.mail_number;"
    };
}

/// Makes the tables, in one transaction: the server treats several statements that are sent together as one.
pub(super) const CREATE: &str = concat!(
    "
CREATE TABLE {s}.store (
    one boolean PRIMARY KEY CHECK (one), millrun_format int NOT NULL, number bigint NOT NULL,
    openings bigint NOT NULL, first bigint NOT NULL);
CREATE TABLE {s}.writer (
    node text PRIMARY KEY, term bigint NOT NULL, holder bigint NOT NULL, pid int NOT NULL DEFAULT 0,
    started text NOT NULL DEFAULT '', lease bigint NOT NULL DEFAULT 0, claims boolean NOT NULL DEFAULT false);
CREATE TABLE {s}.marker (
    node text PRIMARY KEY, at bigint NOT NULL, len bigint NOT NULL DEFAULT 0, bytes bigint NOT NULL DEFAULT 0);
CREATE TABLE {s}.part (
    part smallint PRIMARY KEY, epoch bigint NOT NULL, holder bigint NOT NULL DEFAULT 0,
    len bigint NOT NULL DEFAULT 0, bytes bigint NOT NULL DEFAULT 0);
CREATE TABLE {s}.gone (holder bigint PRIMARY KEY);
CREATE TABLE {s}.turn (
    part smallint NOT NULL, run uuid NOT NULL, seq bigint NOT NULL, last bigint NOT NULL, frames bytea NOT NULL,
    PRIMARY KEY (part, run, seq));
ALTER TABLE {s}.turn ALTER frames SET STORAGE EXTERNAL;
CREATE TABLE {s}.live (part smallint NOT NULL, run uuid NOT NULL, id bytea NOT NULL, PRIMARY KEY (part, run));
CREATE TABLE {s}.finished (
    number bigint PRIMARY KEY, part smallint NOT NULL, run uuid NOT NULL, id bytea NOT NULL, started bigint NOT NULL,
    closed_at bigint NOT NULL, head bigint NOT NULL, kind smallint NOT NULL, bytes bigint NOT NULL,
    gone boolean NOT NULL DEFAULT false);
CREATE SEQUENCE {s}.finished_number;
CREATE INDEX finished_run ON {s}.finished (run);
CREATE INDEX finished_id ON {s}.finished (id, number);
CREATE TABLE {s}.snapshot (
    part smallint NOT NULL, run uuid NOT NULL, seq bigint NOT NULL, folded bytea NOT NULL, PRIMARY KEY (part, run));
CREATE TABLE {s}.topic (
    number int PRIMARY KEY, name bytea NOT NULL, age_max bigint NOT NULL, bytes_max bigint NOT NULL,
    len_max bigint NOT NULL, unread_bytes_max bigint NOT NULL, dropped bigint NOT NULL);
CREATE TABLE {s}.topic_row (
    topic int NOT NULL, first bigint NOT NULL, len int NOT NULL, last_at bigint NOT NULL, frames bytea NOT NULL,
    PRIMARY KEY (topic, first));
ALTER TABLE {s}.topic_row ALTER frames SET STORAGE EXTERNAL;
CREATE TABLE {s}.topic_id (number bigint PRIMARY KEY, topic int NOT NULL, id uuid NOT NULL, seq bigint NOT NULL);",
    mail_tables!(),
    "
INSERT INTO {s}.store VALUES (true, 5, {number}, 0, 0);
INSERT INTO {s}.writer VALUES ('one', 0, 0);
INSERT INTO {s}.marker VALUES ('one', 0);
INSERT INTO {s}.part SELECT part, 0 FROM generate_series(0, 1023) AS part;
"
);

/// Upgrade a store from format 1 to 2, and so on, each in one transaction.
pub(super) const UPGRADES: [&str; 4] = [UPGRADE_1, UPGRADE_2, UPGRADE_3, UPGRADE_4];

const UPGRADE_1: &str = "
ALTER TABLE {s}.writer ADD COLUMN IF NOT EXISTS pid int NOT NULL DEFAULT 0;
ALTER TABLE {s}.writer ADD COLUMN IF NOT EXISTS started text NOT NULL DEFAULT '';
ALTER TABLE {s}.marker ADD COLUMN IF NOT EXISTS len bigint NOT NULL DEFAULT 0;
ALTER TABLE {s}.marker ADD COLUMN IF NOT EXISTS bytes bigint NOT NULL DEFAULT 0;
ALTER TABLE {s}.part ADD COLUMN IF NOT EXISTS holder bigint NOT NULL DEFAULT 0;
CREATE TABLE IF NOT EXISTS {s}.gone (holder bigint PRIMARY KEY);
ALTER TABLE {s}.finished ADD COLUMN IF NOT EXISTS gone boolean NOT NULL DEFAULT false;
CREATE SEQUENCE IF NOT EXISTS {s}.finished_number;
UPDATE {s}.store SET millrun_format = 2 WHERE millrun_format = 1;
";

const UPGRADE_2: &str = "
ALTER TABLE {s}.writer ADD COLUMN lease bigint NOT NULL DEFAULT 0, ADD COLUMN claims boolean NOT NULL DEFAULT false;
UPDATE {s}.store SET millrun_format = 3 WHERE millrun_format = 2;
";

const UPGRADE_3: &str = concat!(
    "
ALTER TABLE {s}.part ADD COLUMN len bigint NOT NULL DEFAULT 0, ADD COLUMN bytes bigint NOT NULL DEFAULT 0;",
    recount!(),
    "
UPDATE {s}.store SET millrun_format = 4 WHERE millrun_format = 3;
"
);

const UPGRADE_4: &str = concat!(
    mail_tables!(),
    "
UPDATE {s}.store SET millrun_format = 5 WHERE millrun_format = 4;
"
);

/// Counts the retained finished runs of each partition by reading all of them.
pub(super) const RECOUNT: &str = recount!();

/// The name of the node that has the store to itself.
pub(super) const NODE: &str = "one";

/// The prefix of the names of other nodes.
pub(super) const NODE_PREFIX: &str = "n/";

/// One flush: the fence, the marker, and all rows, in one statement. These parts differ between a store of one process and of
/// several: whose row the fence is, what the marker keeps beside its place, how finished runs are numbered and whether they
/// are dropped at once, which names are forgotten, what is written of partitions, and what is returned.
macro_rules! flush {
    (
        fence $fence:literal,
        marker $marker:literal,
        number $number:literal,
        gone ($gone:literal, $is_gone:literal, $gones:literal),
        forgets $forgets:literal,
        partitions $partitions:literal,
        more $more:literal,
        told $told:literal
    ) => {
        concat!(
            "
WITH fence AS (
    SELECT w.node FROM {s}.writer w WHERE w.node = $1 AND w.term = $2",
            $fence,
            " FOR SHARE
), moved AS (
    UPDATE {s}.marker m SET at = $4",
            $marker,
            " FROM fence f WHERE m.node = f.node AND m.at = $3 RETURNING m.at
), turns AS (
    INSERT INTO {s}.turn (part, run, seq, last, frames)
    SELECT * FROM unnest($5::smallint[], $6::uuid[], $7::bigint[], $8::bigint[], $9::bytea[])
    WHERE EXISTS (SELECT FROM moved)
), trimmed AS (
    DELETE FROM {s}.turn t USING unnest($10::smallint[], $11::uuid[], $12::bigint[]) AS d (part, run, before)
    WHERE t.part = d.part AND t.run = d.run AND t.seq < d.before AND EXISTS (SELECT FROM moved)
), opened AS (
    INSERT INTO {s}.live (part, run, id)
    SELECT * FROM unnest($13::smallint[], $14::uuid[], $15::bytea[]) WHERE EXISTS (SELECT FROM moved)
), closed AS (
    DELETE FROM {s}.live l USING unnest($16::smallint[], $17::uuid[]) AS d (part, run)
    WHERE l.part = d.part AND l.run = d.run AND EXISTS (SELECT FROM moved)
), finished AS (
    INSERT INTO {s}.finished (number, part, run, id, started, closed_at, head, kind, bytes",
            $gone,
            ")
    SELECT ",
            $number,
            ", f.part, f.run,
        coalesce(f.id, (SELECT l.id FROM {s}.live l WHERE l.part = f.part AND l.run = f.run)),
        f.started, f.closed_at, f.head, f.kind, f.bytes",
            $is_gone,
            "
    FROM unnest($18::bigint[], $19::smallint[], $20::uuid[], $21::bytea[], $22::bigint[], $23::bigint[], $24::bigint[],
        $25::smallint[], $26::bigint[]",
            $gones,
            ")
        AS f (number, part, run, id, started, closed_at, head, kind, bytes",
            $gone,
            ")
    WHERE EXISTS (SELECT FROM moved)
), retained AS (
    UPDATE {s}.store SET first = $27 WHERE first < $27 AND EXISTS (SELECT FROM moved)
), forgotten AS (
    DELETE FROM {s}.finished WHERE number >= $56 AND number < $28",
            $forgets,
            " AND EXISTS (SELECT FROM moved)
), snapshots AS (
    INSERT INTO {s}.snapshot (part, run, seq, folded)
    SELECT * FROM unnest($29::smallint[], $30::uuid[], $31::bigint[], $32::bytea[]) WHERE EXISTS (SELECT FROM moved)
    ON CONFLICT (part, run) DO UPDATE SET seq = excluded.seq, folded = excluded.folded
), no_snapshots AS (
    DELETE FROM {s}.snapshot n USING unnest($33::smallint[], $34::uuid[]) AS d (part, run)
    WHERE n.part = d.part AND n.run = d.run AND EXISTS (SELECT FROM moved)
), epochs AS (
",
            $partitions,
            "), topics AS (
    INSERT INTO {s}.topic (number, name, age_max, bytes_max, len_max, unread_bytes_max, dropped)
    SELECT * FROM unnest($37::int[], $38::bytea[], $39::bigint[], $40::bigint[], $41::bigint[], $55::bigint[],
        $42::bigint[])
    WHERE EXISTS (SELECT FROM moved)
    ON CONFLICT (number) DO UPDATE SET name = excluded.name, age_max = excluded.age_max,
        bytes_max = excluded.bytes_max, len_max = excluded.len_max, unread_bytes_max = excluded.unread_bytes_max,
        dropped = excluded.dropped
), topic_rows AS (
    INSERT INTO {s}.topic_row (topic, first, len, last_at, frames)
    SELECT * FROM unnest($43::int[], $44::bigint[], $45::int[], $46::bigint[], $47::bytea[])
    WHERE EXISTS (SELECT FROM moved)
), topic_drops AS (
    DELETE FROM {s}.topic_row t USING unnest($48::int[], $49::bigint[]) AS d (topic, first)
    WHERE t.topic = d.topic AND t.first = d.first AND EXISTS (SELECT FROM moved)
), topic_ids AS (
    INSERT INTO {s}.topic_id (number, topic, id, seq)
    SELECT * FROM unnest($50::bigint[], $51::int[], $52::uuid[], $53::bigint[]) WHERE EXISTS (SELECT FROM moved)
), topic_ids_forgotten AS (
    DELETE FROM {s}.topic_id WHERE number >= $57 AND number < $54 AND EXISTS (SELECT FROM moved)
)",
            $more,
            "
SELECT EXISTS (SELECT FROM fence), EXISTS (SELECT FROM moved),
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
            $told
        )
    };
}

/// A flush of the process that has the store to itself.
pub(super) const FLUSH: &str = flush!(
    fence "",
    marker "",
    number "f.number",
    gone ("", "", ""),
    forgets "",
    partitions "
    UPDATE {s}.part p SET epoch = e.epoch FROM unnest($35::smallint[], $36::bigint[]) AS e (part, epoch)
    WHERE p.part = e.part AND p.epoch < e.epoch AND EXISTS (SELECT FROM moved)
",
    more "",
    told ""
);

/// A flush of a node. It returns what the other nodes retain. The marker of a node that is gone is gone with its row, and the
/// marker of a single process counts nothing. Mail is for a partition, for the node of a holder (with partition -1), or for
/// all other nodes (with holder 0 as well).
pub(super) const FLUSH_NODE: &str = flush!(
    fence " AND w.holder = $63",
    marker ", len = $60, bytes = $61",
    number "coalesce(f.number, nextval('{s}.finished_number'))",
    gone (", gone", ", f.gone", ", $64::boolean[]"),
    forgets " AND part = ANY ($58::smallint[]) AND (gone OR number < (SELECT first FROM {s}.store))",
    partitions "
    UPDATE {s}.part p SET epoch = greatest(p.epoch, e.epoch), holder = CASE WHEN e.released THEN 0 ELSE p.holder END,
        len = coalesce(e.len, p.len), bytes = coalesce(e.bytes, p.bytes)
    FROM unnest($35::smallint[], $36::bigint[], $62::boolean[], $65::bigint[], $66::bigint[])
        AS e (part, epoch, released, len, bytes)
    WHERE p.part = e.part AND p.holder = $63 AND EXISTS (SELECT FROM moved)
",
    more ", dropped AS (
    UPDATE {s}.finished f SET gone = true FROM unnest($59::bigint[]) AS d (number)
    WHERE f.number = d.number AND EXISTS (SELECT FROM moved)
), others AS (
    SELECT coalesce(sum(m.len), 0)::bigint AS len, coalesce(sum(m.bytes), 0)::bigint AS bytes
    FROM {s}.marker m WHERE m.node <> $1
), mailed AS (
    INSERT INTO {s}.mail (number, part, holder, body)
    SELECT nextval('{s}.mail_number'), p.part, p.holder, p.body FROM (
        SELECT m.part, coalesce(w.holder, m.holder) AS holder, m.body
        FROM unnest($67::smallint[], $68::bigint[], $69::bytea[]) WITH ORDINALITY AS m (part, holder, body, place)
        LEFT JOIN {s}.writer w ON m.part = -1 AND w.holder <> 0
            AND CASE WHEN m.holder = 0 THEN w.holder <> $63 ELSE w.holder = m.holder END
        WHERE (m.part >= 0 OR w.holder IS NOT NULL) AND EXISTS (SELECT FROM moved) ORDER BY m.place) p
), handled AS (
    DELETE FROM {s}.mail WHERE number = ANY ($70::bigint[]) AND EXISTS (SELECT FROM moved)
), set_aside AS (
    UPDATE {s}.mail SET aside = true WHERE number = ANY ($71::bigint[]) AND EXISTS (SELECT FROM moved)
)",
    told ", (SELECT len FROM others), (SELECT bytes FROM others)"
);

/// Takes partitions for a node, all or none: partitions that it has, that are free, or whose holder is gone. It moves the
/// marker as a flush does, so its outcome can be found in the same way. Partitions that another node is taking at this moment
/// are skipped.
///
/// A holder that is gone stays gone, so an earlier snapshot of `gone` is as good as the present one.
pub(super) const HOLD: &str = "
WITH fence AS (
    SELECT w.node FROM {s}.writer w WHERE w.node = $1 AND w.term = $2 AND w.holder = $6 FOR SHARE
), moved AS (
    UPDATE {s}.marker m SET at = $4 FROM fence f WHERE m.node = f.node AND m.at = $3 RETURNING m.at
), wanted AS (
    SELECT p.part FROM {s}.part p
    WHERE p.part = ANY ($5::smallint[]) AND EXISTS (SELECT FROM moved)
        AND (p.holder = 0 OR p.holder = $6 OR p.holder IN (SELECT g.holder FROM {s}.gone g))
    FOR UPDATE OF p SKIP LOCKED
), taken AS (
    UPDATE {s}.part p SET holder = $6 FROM wanted w
    WHERE p.part = w.part AND (SELECT count(*) FROM wanted) = cardinality($5::smallint[])
    RETURNING p.part
)
SELECT EXISTS (SELECT FROM fence), EXISTS (SELECT FROM moved),
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, (SELECT count(*) FROM taken)";

/// The holders of partitions, and the latest epochs.
pub(super) const HELD: &str = "SELECT part, holder, epoch FROM {s}.part WHERE part = ANY ($1) ORDER BY part";

/// The server's time when it answers.
pub(super) const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// A node leaves: its partitions become free, and it writes nothing any more.
pub(super) const LEAVE: &str = "
WITH fenced AS (
    DELETE FROM {s}.writer WHERE node = $1 AND holder = $2 RETURNING node
), unmarked AS (
    DELETE FROM {s}.marker m USING fenced f WHERE m.node = f.node
), unmailed AS (
    DELETE FROM {s}.mail WHERE part = -1 AND holder = $2 AND EXISTS (SELECT FROM fenced)
)
UPDATE {s}.part SET holder = 0 WHERE holder = $2 AND EXISTS (SELECT FROM fenced)";

/// Declares a node dead. A flush under way locks the node's row; once the row is deleted, later flushes do not find it.
pub(super) const DECLARE_DEAD: &str = "
WITH fenced AS (
    DELETE FROM {s}.writer WHERE node = $1 AND holder = $2 RETURNING node
), unmarked AS (
    DELETE FROM {s}.marker m USING fenced f WHERE m.node = f.node
), unmailed AS (
    DELETE FROM {s}.mail WHERE part = -1 AND holder = $2 AND EXISTS (SELECT FROM fenced)
)
INSERT INTO {s}.gone (holder) SELECT $2 FROM fenced ON CONFLICT DO NOTHING";

/// The session that writes for a node.
pub(super) const SESSION_OF: &str = "SELECT pid, started FROM {s}.writer WHERE node = $1 AND holder = $2";

/// A node joins under a name that no living session has. A former opening with that name is gone after its last flush.
pub(super) const JOIN: &str = "
WITH former AS (
    SELECT holder FROM {s}.writer WHERE node = $1 FOR UPDATE
), buried AS (
    INSERT INTO {s}.gone (holder) SELECT holder FROM former ON CONFLICT DO NOTHING RETURNING holder
)
INSERT INTO {s}.writer AS w (node, term, holder, pid, started)
SELECT $1, 1, $2::bigint, $3::int, $4::text FROM (SELECT count(*) FROM buried) first
ON CONFLICT (node) DO UPDATE
SET term = w.term + 1, holder = $2, pid = $3, started = $4, lease = 0, claims = false
RETURNING term";

/// A node's announcement about itself. It waits for a flush of the node that is under way.
pub(super) const ANNOUNCE: &str =
    "UPDATE {s}.writer SET lease = $3, claims = $4 WHERE node = $1 AND holder = $2 RETURNING node";

/// The marker of a node that joins; it stays where a former opening has left it.
pub(super) const JOIN_MARKER: &str = "
INSERT INTO {s}.marker AS m (node, at) VALUES ($1, 0)
ON CONFLICT (node) DO UPDATE SET len = 0, bytes = 0 RETURNING at";

/// Retires a process that had the store to itself and is cut off: it writes nothing any more. Returns whether there was one
/// since nodes last had the store.
pub(super) const RETIRE_ONE: &str =
    "UPDATE {s}.writer SET term = term + 1, holder = 0 WHERE node = 'one' AND holder <> 0 RETURNING node";

/// Continues the numbers of finished runs after all that exist.
pub(super) const NUMBER_ON: &str = "
SELECT setval('{s}.finished_number', next.number) FROM (SELECT max(number) + 1 AS number FROM {s}.finished) next
WHERE next.number > (SELECT last_value FROM {s}.finished_number)";

/// Marks holders of partitions without a row as gone: none of their flushes finds its fence.
pub(super) const BURY: &str = "
INSERT INTO {s}.gone (holder)
SELECT DISTINCT p.holder FROM {s}.part p
WHERE p.holder <> 0 AND NOT EXISTS (SELECT FROM {s}.writer w WHERE w.holder = p.holder) ON CONFLICT DO NOTHING";

/// Deletes mail for nodes that are gone.
pub(super) const FORGET_MAIL: &str = "
DELETE FROM {s}.mail m WHERE m.part = -1 AND NOT EXISTS (SELECT FROM {s}.writer w WHERE w.holder = m.holder)";

/// Mail for the node of this holder, and for those of these partitions that it has. Mail for other nodes is scanned too. The
/// lists are subqueries: otherwise each would be searched through for each piece of mail.
pub(super) const UNREAD_MAIL: &str = "
SELECT w.number, w.part, w.body FROM (
    SELECT m.number, m.part, m.body,
        sum(octet_length(m.body)) OVER (ORDER BY m.number) - octet_length(m.body) AS before
    FROM {s}.mail m
    WHERE NOT m.aside AND m.number NOT IN (SELECT unnest($3::bigint[])) AND (m.part = -1 AND m.holder = $1
        OR m.part IN (SELECT unnest($2::smallint[]))
            AND EXISTS (SELECT FROM {s}.part p WHERE p.part = m.part AND p.holder = $1))
    ORDER BY m.number LIMIT $4) w
WHERE w.before < $5 OR w.before = 0 ORDER BY w.number";

/// Deletes holders that are gone and have nothing left.
pub(super) const FORGET_GONE: &str =
    "DELETE FROM {s}.gone g WHERE NOT EXISTS (SELECT FROM {s}.part p WHERE p.holder = g.holder)";

/// Deletes all traces of nodes, since this opening has the store to itself. Runs ask again for what they had sent each other,
/// and for the rest of the mail no caller waits.
pub(super) const TAKE_TABLES: &str = "
UPDATE {s}.part SET holder = 0 WHERE holder <> 0;
DELETE FROM {s}.mail;
DELETE FROM {s}.gone;
DELETE FROM {s}.marker WHERE node <> 'one';
";

/// The nodes that have joined and not left, with their markers and announcements.
pub(super) const NODES: &str = "
SELECT w.node, w.holder, m.at, w.lease, w.claims FROM {s}.writer w JOIN {s}.marker m ON m.node = w.node WHERE w.holder <> 0 ORDER BY w.node";

/// The partitions of each holder.
pub(super) const HOLDERS: &str = "SELECT holder, array_agg(part ORDER BY part) FROM {s}.part GROUP BY holder";

pub(super) const RAISE: &str = "UPDATE {s}.writer SET term = term + 1, pid = $3, started = $4 WHERE node = $1 AND holder = $2 RETURNING term";

/// Takes the store for this opening: a former process that still writes is fenced, and so are all nodes.
pub(super) const TAKE: &str = "
WITH others AS (
    DELETE FROM {s}.writer WHERE node <> $1
)
UPDATE {s}.writer SET term = term + 1, holder = $2, pid = $3, started = $4 WHERE node = $1 RETURNING term";

pub(super) const MARKER: &str = "SELECT at FROM {s}.marker WHERE node = $1";

/// Which opening has the store, and how far the store has come.
pub(super) const PLACE: &str = "
SELECT w.holder, w.term, m.at FROM {s}.writer w, {s}.marker m WHERE w.node = $1 AND m.node = w.node";

pub(super) const EARLIEST: &str = "
SELECT number, run, closed_at, bytes FROM {s}.finished WHERE number >= $1 AND NOT gone ORDER BY number LIMIT $2";

/// As [`EARLIEST`], for some partitions.
pub(super) const EARLIEST_OF: &str = "
SELECT number, run, closed_at, bytes FROM {s}.finished
WHERE number >= $1 AND part = ANY ($3::smallint[]) AND NOT gone ORDER BY number LIMIT $2";

/// The number of retained finished runs of partitions, and their bytes.
pub(super) const RETAINED_OF: &str =
    "SELECT part, len, bytes FROM {s}.part WHERE part = ANY ($1) AND len > 0";

/// Takes the lock that keeps other openings out while the session lives. The second value has the form that a node's
/// statement has.
pub(super) const LOCK: &str = "
SELECT pg_try_advisory_lock(1835625580, (oid::bigint - 2147483648)::int), $2::text = $2 FROM pg_namespace
WHERE nspname = $1";

/// Takes the locks of a node: against processes that want the store to themselves, and against another process under this
/// node's name.
pub(super) const LOCK_NODE: &str = "
SELECT pg_try_advisory_lock_shared(1835625580, (oid::bigint - 2147483648)::int),
    pg_try_advisory_lock(hashtextextended($2, oid::bigint)) FROM pg_namespace WHERE nspname = $1";

/// Lets nodes in again after an upgrade.
pub(super) const UNLOCK: &str = "
SELECT pg_advisory_unlock(1835625580, (oid::bigint - 2147483648)::int) FROM pg_namespace WHERE nspname = $1";

pub(super) const LOCK_HOLDER: &str = "
SELECT a.pid, coalesce(host(a.client_addr), 'a socket'), coalesce(a.application_name, '')
FROM pg_locks l JOIN pg_namespace n ON n.nspname = $1 JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.classid::bigint = 1835625580
    AND l.objid::bigint = (n.oid::bigint - 2147483648 + 4294967296) % 4294967296
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Ends a session, named by its process and when that began, in microseconds: a time as text would depend on the settings of
/// the session that wrote it. Some users cannot see when sessions of other users began; then the session must have the lock
/// of the store.
pub(super) const END_SESSION: &str = "
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
WHERE a.pid = $1 AND coalesce((extract(epoch FROM a.backend_start) * 1000000)::bigint::text = $2, EXISTS (
    SELECT FROM pg_locks l JOIN pg_namespace n ON n.nspname = $3
    WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.granted AND l.classid::bigint = 1835625580
        AND l.objid::bigint = (n.oid::bigint - 2147483648 + 4294967296) % 4294967296
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())))";

pub(super) const OPENING: &str = "
UPDATE {s}.store SET openings = greatest(openings + 1, (
    SELECT max((epoch >> 32) + greatest(epoch & 4294967295, 1)) FROM {s}.part)) RETURNING openings, first, number";

pub(super) const RETAINED: &str = "
SELECT count(*) FILTER (WHERE number >= $1 AND NOT gone),
    coalesce(sum(bytes) FILTER (WHERE number >= $1 AND NOT gone), 0)::bigint,
    greatest(coalesce(max(number) + 1, $1), $1),
    (SELECT closed_at FROM {s}.finished ORDER BY number DESC LIMIT 1)
FROM {s}.finished";

/// When the last finished run closed.
pub(super) const LAST_CLOSED: &str = "SELECT closed_at FROM {s}.finished ORDER BY number DESC LIMIT 1";

/// All live runs with their last turns.
pub(super) const HEADS: &str = "
SELECT l.run, t.seq, t.last, t.frames, (SELECT sum(octet_length(b.frames)) FROM {s}.turn b
    WHERE b.part = l.part AND b.run = l.run)::bigint
FROM {s}.live l LEFT JOIN LATERAL (
    SELECT seq, last, frames FROM {s}.turn WHERE part = l.part AND run = l.run ORDER BY seq DESC LIMIT 1) t ON true";

/// As [`HEADS`], for some partitions.
pub(super) const HEADS_OF: &str = "
SELECT l.run, t.seq, t.last, t.frames, (SELECT sum(octet_length(b.frames)) FROM {s}.turn b
    WHERE b.part = l.part AND b.run = l.run)::bigint
FROM {s}.live l LEFT JOIN LATERAL (
    SELECT seq, last, frames FROM {s}.turn WHERE part = l.part AND run = l.run ORDER BY seq DESC LIMIT 1) t ON true
WHERE l.part = ANY ($1)";

/// Turns of a run behind a record, with the run's last record: at most 512, and one more than fits the requested bytes.
pub(super) const TURNS: &str = "
SELECT h.last, t.last, t.frames
FROM (SELECT last FROM {s}.turn WHERE part = $1 AND run = $2 ORDER BY seq DESC LIMIT 1) h LEFT JOIN LATERAL (
    SELECT w.seq, w.last, w.frames FROM (
        SELECT r.seq, r.last, r.frames, sum(octet_length(r.frames)) OVER (ORDER BY r.seq) - octet_length(r.frames) AS before
        FROM (
            SELECT seq, last, frames FROM {s}.turn
            WHERE part = $1 AND run = $2 AND last > $3 AND seq >= coalesce((
                SELECT max(seq) FROM {s}.turn WHERE part = $1 AND run = $2 AND seq <= $3 + 1), 0)
            ORDER BY seq LIMIT 512) r) w
    WHERE w.before < $4 OR w.before = 0) t ON true
ORDER BY t.seq";

/// Whether a run without turns was dropped.
pub(super) const FATE: &str = "
SELECT f.number < s.first OR f.gone FROM {s}.finished f, {s}.store s WHERE f.run = $1 ORDER BY f.number DESC LIMIT 1";

pub(super) const RUN_BYTES: &str =
    "SELECT coalesce(sum(octet_length(frames)), 0)::bigint FROM {s}.turn WHERE part = $1 AND run = $2";

pub(super) const SNAPSHOT: &str = "SELECT seq, folded FROM {s}.snapshot WHERE part = $1 AND run = $2";

pub(super) const FINISHED: &str = "
SELECT f.number >= s.first AND NOT f.gone, f.run, f.closed_at, f.head
FROM unnest($1::bytea[]) WITH ORDINALITY AS w (id, place) CROSS JOIN {s}.store s LEFT JOIN LATERAL (
    SELECT number, run, closed_at, head, gone FROM {s}.finished WHERE id = w.id ORDER BY number DESC LIMIT 1) f ON true
ORDER BY w.place";

pub(super) const LIST_FINISHED: &str = "
SELECT f.run, f.id, f.closed_at, f.head FROM {s}.finished f, {s}.store s
WHERE f.number >= s.first AND NOT f.gone AND f.number > coalesce(
    (SELECT max(number) FROM {s}.finished WHERE run = $1 AND number >= (SELECT first FROM {s}.store) AND NOT gone), -1)
ORDER BY f.number LIMIT $2";

/// The bounds of a search: the number behind the latest run, and the first number that is examined and retained. A search
/// examines at most 65,536 runs.
pub(super) const SEARCH_BOUNDS: &str = "
SELECT b.before, greatest(b.before - 65536, s.first), s.first FROM {s}.store s, (
    SELECT CASE WHEN $1::uuid IS NULL THEN (SELECT max(number) + 1 FROM {s}.finished)
        ELSE (SELECT max(number) FROM {s}.finished WHERE run = $1) END AS before) b
WHERE b.before IS NOT NULL";

pub(super) const SEARCH: &str = "
SELECT run, closed_at, head, kind, number FROM {s}.finished
WHERE number >= $1 AND number < $2 AND NOT gone AND kind = ANY ($3) AND closed_at >= $4 AND closed_at < $5
    AND started >= $6 AND started < $7
ORDER BY number DESC LIMIT $8";

/// The run before which the next search continues: the earliest that was examined, if any.
pub(super) const SEARCH_NEXT: &str =
    "SELECT run FROM {s}.finished WHERE number >= $1 AND number < $2 ORDER BY number LIMIT 1";

pub(super) const LIVE_TURNS: &str = "
SELECT l.run, t.frames FROM {s}.live l LEFT JOIN {s}.turn t ON t.part = l.part AND t.run = l.run
WHERE l.part = ANY ($1) AND ($2::uuid IS NULL OR l.run > $2) ORDER BY l.part, l.run, t.seq";

/// All topics, each with its last record and the bytes of its rows.
pub(super) const TOPICS: &str = "
SELECT t.number, t.name, t.age_max, t.bytes_max, t.len_max, t.dropped,
    (SELECT r.first + r.len - 1 FROM {s}.topic_row r WHERE r.topic = t.number ORDER BY r.first DESC LIMIT 1),
    (SELECT coalesce(sum(octet_length(r.frames)), 0)::bigint FROM {s}.topic_row r WHERE r.topic = t.number),
    t.unread_bytes_max
FROM {s}.topic t ORDER BY t.number";

pub(super) const TOPIC_IDS: &str = "SELECT number, topic, id, seq FROM {s}.topic_id ORDER BY number";

/// The earliest rows of a topic behind a record.
pub(super) const TOPIC_FRONT: &str = "
SELECT first, first + len - 1, octet_length(frames)::bigint, last_at FROM {s}.topic_row
WHERE topic = $1 AND first > $2 ORDER BY first LIMIT $3";

/// Rows of a topic, from the row that holds the next record behind the given one: at most 512, and one more than fits the
/// requested bytes.
pub(super) const TOPIC_ROWS: &str = "
SELECT w.first, w.len, w.last_at, w.frames FROM (
    SELECT r.first, r.len, r.last_at, r.frames,
        sum(octet_length(r.frames)) OVER (ORDER BY r.first) - octet_length(r.frames) AS before
    FROM (
        SELECT first, len, last_at, frames FROM {s}.topic_row
        WHERE topic = $1 AND first >= coalesce((
            SELECT max(first) FROM {s}.topic_row WHERE topic = $1 AND first <= $2::bigint + 1), 0)
        ORDER BY first LIMIT 512) r) w
WHERE w.before < $3 OR w.before = 0 ORDER BY w.first";

/// The record before the first row that ends at this time or later.
pub(super) const TOPIC_AT: &str = "
SELECT first - 1 FROM {s}.topic_row WHERE topic = $1 AND last_at >= $2 ORDER BY first LIMIT 1";
