//! What can be seen of a broker: events off the fast path, the steps of each envelope, what is given up, who
//! waits for whom, the picture of it all.

pub(crate) mod dead_letter;
pub(crate) mod monitor;
pub(crate) mod tap;
pub(crate) mod topology;
pub(crate) mod wait;
