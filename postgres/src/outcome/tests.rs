//! The machine against a server that does what a real one may: it does a statement late, loses the answer, restarts, and
//! forgets what it has acknowledged.

use super::*;

/// As much of a server as the machine talks to.
#[derive(Debug)]
struct Model {
    term: i64,
    marker: i64,
    /// Flushes in the order in which they were done.
    done: Vec<u64>,
    /// A statement that was sent and has not been done.
    under_way: Option<(Move, u64)>,
    /// Raises that were sent and have not been done.
    late_raises: i64,
}

impl Model {
    fn run(&mut self, (moved, flush): (Move, u64)) -> Heard {
        let has_term = moved.term == self.term;
        let has_moved = has_term && moved.from == self.marker;
        if has_moved {
            self.marker = moved.to;
            self.done.push(flush);
        }
        Heard::Flushed { has_term, has_moved }
    }

    /// Waits for the statement that is under way, as the lock of a row does.
    fn raise(&mut self, mistake: Mistake, dice: &mut Dice) -> Heard {
        if let Some(sent) = self.under_way.take() {
            match dice.below(3) {
                // It holds the lock: the raise waits for it.
                0 => drop(self.run(sent)),
                // It comes behind the raise.
                1 if mistake == Mistake::None => {
                    self.term += 1;
                    self.run(sent);
                    return Heard::Raised(Some(self.term));
                }
                1 => self.under_way = Some(sent),
                _ => {}
            }
        }
        if mistake != Mistake::NoRaise {
            self.term += 1;
        }
        Heard::Raised(Some(self.term))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// The term stays as it is.
    NoRaise,
    /// The flush is sent again without a look.
    NoLook,
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, max: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % max
    }
}

/// Makes forty flushes durable; says whether each was done once and in order.
fn is_exact(seed: u64, mistake: Mistake) -> bool {
    let mut dice = Dice(seed);
    let mut server = Model {
        term: 7,
        marker: 0,
        done: Vec::new(),
        under_way: None,
        late_raises: 0,
    };
    let mut fate = FlushFate::new(7, 0);
    for flush in 0..40 {
        fate.begin();
        for _ in 0..10_000 {
            let heard = match fate.step() {
                Step::Connect => Heard::Connected,
                Step::Raise if dice.below(4) == 0 => {
                    // Done, and the answer is lost.
                    server.raise(mistake, &mut dice);
                    Heard::Lost
                }
                Step::Raise if dice.below(4) == 0 => {
                    server.late_raises += 1;
                    Heard::Lost
                }
                Step::Raise | Step::Look if dice.below(8) == 0 => Heard::Refused,
                Step::Look if mistake == Mistake::NoLook => Heard::Marker(Some(fate.marker)),
                Step::Raise => server.raise(mistake, &mut dice),
                Step::Look if dice.below(4) == 0 => Heard::Lost,
                Step::Look => Heard::Marker(Some(server.marker)),
                Step::Send(moved) => {
                    fate.sent();
                    if dice.below(2) == 0 {
                        server.term += std::mem::take(&mut server.late_raises);
                    }
                    if let Some(late) = server.under_way.take() {
                        server.run(late);
                    }
                    match dice.below(4) {
                        0 => {
                            server.run((moved, flush));
                            Heard::Lost
                        }
                        1 => {
                            server.under_way = Some((moved, flush));
                            Heard::Lost
                        }
                        2 => Heard::Refused,
                        _ => server.run((moved, flush)),
                    }
                }
                Step::Rest => break,
                Step::Stop(_) => return false,
            };
            fate.hear(heard);
        }
    }
    server.done == (0..40).collect::<Vec<_>>()
}

#[test]
fn each_flush_is_done_once_whatever_is_lost() {
    for seed in 0..2_000 {
        assert!(is_exact(seed, Mistake::None), "seed {seed}");
    }
}

#[test]
fn a_machine_that_does_not_raise_the_term_or_does_not_look_is_found_out() {
    for mistake in [Mistake::NoRaise, Mistake::NoLook] {
        let found = (0..200).filter(|seed| !is_exact(*seed, mistake)).count();
        assert!(found > 20, "{mistake:?}: {found}");
    }
}

#[test]
fn a_marker_that_is_not_where_it_was_stops_the_writer() {
    for (found, expected) in [(Some(4), Some(4)), (Some(6), Some(6)), (None, None)] {
        let mut fate = FlushFate::new(1, 5);
        fate.hear(Heard::Lost);
        fate.begin();
        fate.hear(Heard::Connected);
        fate.hear(Heard::Raised(Some(2)));
        assert_eq!(fate.step(), Step::Look);
        fate.hear(Heard::Marker(found));
        let halt = Halt::RolledBack {
            expected: 5,
            found: expected,
        };
        assert_eq!(fate.step(), Step::Stop(halt));
    }
}

#[test]
fn a_term_that_is_not_ours_stops_the_writer() {
    let mut fate = FlushFate::new(1, 5);
    fate.begin();
    fate.sent();
    fate.hear(Heard::Flushed {
        has_term: false,
        has_moved: false,
    });
    // It may have been raised by this opening, late.
    assert_eq!(fate.step(), Step::Raise);
    fate.hear(Heard::Raised(None));
    assert_eq!(fate.step(), Step::Stop(Halt::Fenced));
}

#[test]
fn a_flush_that_did_not_move_the_marker_stops_the_writer_which_says_where_it_is() {
    let mut fate = FlushFate::new(1, 5);
    fate.begin();
    fate.sent();
    fate.hear(Heard::Flushed {
        has_term: true,
        has_moved: false,
    });
    assert_eq!(fate.step(), Step::Look);
    // That flush did nothing, so this is another's.
    fate.hear(Heard::Marker(Some(6)));
    let halt = Halt::RolledBack {
        expected: 5,
        found: Some(6),
    };
    assert_eq!(fate.step(), Step::Stop(halt));
}
