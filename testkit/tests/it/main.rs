//! The test tools, tested.

mod sim;
