//! The tables of a store, format 1. All stand in one schema, of which `{s}` is the name.
//!
//! ```text
//!   store     one row: format, number of the store, number of openings, first finished run that is retained
//!   writer    node, term, holder: who may write      marker   node, where its last flush has left it
//!   part      1,024 rows: the latest epoch of each partition
//!   turn      part, run, seq (of the first record), last, frames (of `millrun_persistence::frames`)
//!   live      part, run, id of the instance           snapshot part, run, seq, folded
//!   finished  number (in the order of closing), part, run, id, times, head, kind of the last record, bytes
//!   topic     number, name, retention, dropped        topic_row topic, first, len, last_at, frames: records written together
//!   topic_id  number (in the order of appending), topic, id, seq of the record
//! ```
//!
//! Ids of instances are bytes: PostgreSQL's texts have no zero byte, and ids may.

/// A statement about the tables of a schema. Its name may be a word of SQL, such as `order`; it has no quotes of its own.
pub(super) fn of_schema(sql: &str, schema: &str) -> String {
    sql.replace("{s}", &format!("\"{schema}\""))
}

/// The newest format that this release reads and writes.
pub(super) const FORMAT: i32 = 1;

/// Makes the tables, in one transaction of the server: several statements that are sent as one are one.
pub(super) const CREATE: &str = "
CREATE TABLE {s}.store (
    one boolean PRIMARY KEY CHECK (one), millrun_format int NOT NULL, number bigint NOT NULL,
    openings bigint NOT NULL, first bigint NOT NULL);
CREATE TABLE {s}.writer (node text PRIMARY KEY, term bigint NOT NULL, holder bigint NOT NULL);
CREATE TABLE {s}.marker (node text PRIMARY KEY, at bigint NOT NULL);
CREATE TABLE {s}.part (part smallint PRIMARY KEY, epoch bigint NOT NULL);
CREATE TABLE {s}.turn (
    part smallint NOT NULL, run uuid NOT NULL, seq bigint NOT NULL, last bigint NOT NULL, frames bytea NOT NULL,
    PRIMARY KEY (part, run, seq));
ALTER TABLE {s}.turn ALTER frames SET STORAGE EXTERNAL;
CREATE TABLE {s}.live (part smallint NOT NULL, run uuid NOT NULL, id bytea NOT NULL, PRIMARY KEY (part, run));
CREATE TABLE {s}.finished (
    number bigint PRIMARY KEY, part smallint NOT NULL, run uuid NOT NULL, id bytea NOT NULL, started bigint NOT NULL,
    closed_at bigint NOT NULL, head bigint NOT NULL, kind smallint NOT NULL, bytes bigint NOT NULL);
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
CREATE TABLE {s}.topic_id (number bigint PRIMARY KEY, topic int NOT NULL, id uuid NOT NULL, seq bigint NOT NULL);
INSERT INTO {s}.store VALUES (true, 1, {number}, 0, 0);
INSERT INTO {s}.writer VALUES ('one', 0, 0);
INSERT INTO {s}.marker VALUES ('one', 0);
INSERT INTO {s}.part SELECT part, 0 FROM generate_series(0, 1023) AS part;
";

/// The name of the node, of which there is one now.
pub(super) const NODE: &str = "one";

/// One flush: the fence, the marker, and all rows, in one statement.
pub(super) const FLUSH: &str = "
WITH fence AS (
    SELECT w.node FROM {s}.writer w WHERE w.node = $1 AND w.term = $2 FOR SHARE
), moved AS (
    UPDATE {s}.marker m SET at = $4 FROM fence f WHERE m.node = f.node AND m.at = $3 RETURNING m.at
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
    INSERT INTO {s}.finished (number, part, run, id, started, closed_at, head, kind, bytes)
    SELECT f.number, f.part, f.run,
        coalesce(f.id, (SELECT l.id FROM {s}.live l WHERE l.part = f.part AND l.run = f.run)),
        f.started, f.closed_at, f.head, f.kind, f.bytes
    FROM unnest($18::bigint[], $19::smallint[], $20::uuid[], $21::bytea[], $22::bigint[], $23::bigint[], $24::bigint[],
        $25::smallint[], $26::bigint[])
        AS f (number, part, run, id, started, closed_at, head, kind, bytes)
    WHERE EXISTS (SELECT FROM moved)
), retained AS (
    UPDATE {s}.store SET first = $27 WHERE first < $27 AND EXISTS (SELECT FROM moved)
), forgotten AS (
    DELETE FROM {s}.finished WHERE number >= $56 AND number < $28 AND EXISTS (SELECT FROM moved)
), snapshots AS (
    INSERT INTO {s}.snapshot (part, run, seq, folded)
    SELECT * FROM unnest($29::smallint[], $30::uuid[], $31::bigint[], $32::bytea[]) WHERE EXISTS (SELECT FROM moved)
    ON CONFLICT (part, run) DO UPDATE SET seq = excluded.seq, folded = excluded.folded
), no_snapshots AS (
    DELETE FROM {s}.snapshot n USING unnest($33::smallint[], $34::uuid[]) AS d (part, run)
    WHERE n.part = d.part AND n.run = d.run AND EXISTS (SELECT FROM moved)
), epochs AS (
    UPDATE {s}.part p SET epoch = e.epoch FROM unnest($35::smallint[], $36::bigint[]) AS e (part, epoch)
    WHERE p.part = e.part AND p.epoch < e.epoch AND EXISTS (SELECT FROM moved)
), topics AS (
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
)
SELECT EXISTS (SELECT FROM fence), EXISTS (SELECT FROM moved),
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

pub(super) const RAISE: &str =
    "UPDATE {s}.writer SET term = term + 1 WHERE node = $1 AND holder = $2 RETURNING term";

/// Takes the store for this opening: a former process that still writes is fenced.
pub(super) const TAKE: &str =
    "UPDATE {s}.writer SET term = term + 1, holder = $2 WHERE node = $1 RETURNING term";

pub(super) const MARKER: &str = "SELECT at FROM {s}.marker WHERE node = $1";

/// Whose store it is, and how far it has come.
pub(super) const PLACE: &str = "
SELECT w.holder, w.term, m.at FROM {s}.writer w, {s}.marker m WHERE w.node = $1 AND m.node = w.node";

pub(super) const EARLIEST: &str = "
SELECT number, run, closed_at, bytes FROM {s}.finished WHERE number >= $1 ORDER BY number LIMIT $2";

/// Keeps other openings of the store out as long as the session lives.
pub(super) const LOCK: &str = "
SELECT pg_try_advisory_lock(1835625580, (oid::bigint - 2147483648)::int) FROM pg_namespace WHERE nspname = $1";

pub(super) const LOCK_HOLDER: &str = "
SELECT a.pid, coalesce(host(a.client_addr), 'a socket'), coalesce(a.application_name, ''), a.backend_start::text
FROM pg_locks l JOIN pg_namespace n ON n.nspname = $1 JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.classid::bigint = 1835625580
    AND l.objid::bigint = (n.oid::bigint - 2147483648 + 4294967296) % 4294967296
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Ends a session of this opening that the server has not noticed to be gone.
pub(super) const END_SESSION: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start::text = $2";

pub(super) const OPENING: &str = "
UPDATE {s}.store SET openings = greatest(openings + 1, (
    SELECT max((epoch >> 32) + greatest(epoch & 4294967295, 1)) FROM {s}.part)) RETURNING openings, first, number";

pub(super) const RETAINED: &str = "
SELECT count(*) FILTER (WHERE number >= $1), coalesce(sum(bytes) FILTER (WHERE number >= $1), 0)::bigint,
    greatest(coalesce(max(number) + 1, $1), $1),
    (SELECT closed_at FROM {s}.finished ORDER BY number DESC LIMIT 1)
FROM {s}.finished";

/// All live runs with their last turns.
pub(super) const HEADS: &str = "
SELECT l.run, t.seq, t.last, t.frames, (SELECT sum(octet_length(b.frames)) FROM {s}.turn b
    WHERE b.part = l.part AND b.run = l.run)::bigint
FROM {s}.live l LEFT JOIN LATERAL (
    SELECT seq, last, frames FROM {s}.turn WHERE part = l.part AND run = l.run ORDER BY seq DESC LIMIT 1) t ON true";

/// Turns of a run behind a record, with the last record of the run: at most 512, and one more than fit into the bytes asked for.
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

/// Whether a run that has no turns was dropped.
pub(super) const FATE: &str = "
SELECT f.number < s.first FROM {s}.finished f, {s}.store s WHERE f.run = $1 ORDER BY f.number DESC LIMIT 1";

pub(super) const RUN_BYTES: &str =
    "SELECT coalesce(sum(octet_length(frames)), 0)::bigint FROM {s}.turn WHERE part = $1 AND run = $2";

pub(super) const SNAPSHOT: &str = "SELECT seq, folded FROM {s}.snapshot WHERE part = $1 AND run = $2";

pub(super) const FINISHED: &str = "
SELECT f.number >= s.first, f.run, f.closed_at, f.head
FROM unnest($1::bytea[]) WITH ORDINALITY AS w (id, place) CROSS JOIN {s}.store s LEFT JOIN LATERAL (
    SELECT number, run, closed_at, head FROM {s}.finished WHERE id = w.id ORDER BY number DESC LIMIT 1) f ON true
ORDER BY w.place";

pub(super) const LIST_FINISHED: &str = "
SELECT f.run, f.id, f.closed_at, f.head FROM {s}.finished f, {s}.store s
WHERE f.number >= s.first AND f.number > coalesce(
    (SELECT max(number) FROM {s}.finished WHERE run = $1 AND number >= (SELECT first FROM {s}.store)), -1)
ORDER BY f.number LIMIT $2";

/// From where to where a search goes: the number behind the latest, and the first that is examined and retained. It examines
/// 65,536 runs at most.
pub(super) const SEARCH_BOUNDS: &str = "
SELECT b.before, greatest(b.before - 65536, s.first), s.first FROM {s}.store s, (
    SELECT CASE WHEN $1::uuid IS NULL THEN (SELECT max(number) + 1 FROM {s}.finished)
        ELSE (SELECT max(number) FROM {s}.finished WHERE run = $1) END AS before) b
WHERE b.before IS NOT NULL";

pub(super) const SEARCH: &str = "
SELECT run, closed_at, head, kind, number FROM {s}.finished
WHERE number >= $1 AND number < $2 AND kind = ANY ($3) AND closed_at >= $4 AND closed_at < $5
    AND started >= $6 AND started < $7
ORDER BY number DESC LIMIT $8";

/// The run that the next search goes on before.
pub(super) const SEARCH_NEXT: &str =
    "SELECT run FROM {s}.finished WHERE number >= $1 ORDER BY number LIMIT 1";

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

/// Rows of a topic, from the row that holds the next record behind the given one: at most 512, and one more than fit into the bytes
/// asked for.
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

/// The record before the first row that ends at a time or later.
pub(super) const TOPIC_AT: &str = "
SELECT first - 1 FROM {s}.topic_row WHERE topic = $1 AND last_at >= $2 ORDER BY first LIMIT 1";
