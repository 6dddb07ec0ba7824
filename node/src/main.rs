//! The millrun program.

fn main() {}
