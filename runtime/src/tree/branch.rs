//! A branch of the supervision tree: for each part, whether it runs, and how often it was restarted recently.

use std::collections::{BTreeMap, VecDeque};

use millrun_core::{PartHandle, Timestamp};

use super::role::Role;
use crate::RuntimeConfig;

#[derive(Debug, Default)]
pub(super) struct Branches {
    pub(super) by_name: BTreeMap<String, Branch>,
    pub(super) is_abandoned: bool,
}

#[derive(Debug)]
pub(super) struct Branch {
    pub(super) role: Role,
    pub(super) handle: Option<PartHandle>,
    /// The part has ended, perhaps before its handle was stored.
    pub(super) has_ended: bool,
    /// It has ended, and its successor is being made.
    pub(super) is_restarting: bool,
    pub(super) restarts: u32,
    /// It was stopped to be restarted.
    pub(super) is_killed: bool,
    recent: VecDeque<Timestamp>,
}

impl Branch {
    /// A part that is about to be started.
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            handle: None,
            has_ended: false,
            is_restarting: false,
            restarts: 0,
            is_killed: false,
            recent: VecDeque::new(),
        }
    }

    /// Notes the end of the part.
    /// Returns whether it ended because it was killed.
    pub(super) fn ended(&mut self) -> bool {
        self.handle = None;
        self.has_ended = true;
        self.is_restarting = false;
        // If it was killed after it had failed, its successor was not killed.
        std::mem::take(&mut self.is_killed)
    }

    /// Counts a failure. Returns whether the part is restarted.
    pub(super) fn may_restart(&mut self, now: Timestamp, config: &RuntimeConfig) -> bool {
        match self.role {
            Role::Timers(_) => return false,
            Role::Reader(_)
            | Role::Watcher
            | Role::Nodes(..)
            | Role::Beats(..)
            | Role::Mail(_)
            | Role::Shard(_)
            | Role::Pool(..)
            | Role::Actor(_) => {}
        }
        self.recent.push_back(now);
        while self
            .recent
            .front()
            .is_some_and(|at| now.saturating_since(*at) > config.restart_window)
        {
            self.recent.pop_front();
        }
        if self.recent.len() > config.restarts_max as usize {
            return false;
        }
        self.restarts += 1;
        true
    }
}
