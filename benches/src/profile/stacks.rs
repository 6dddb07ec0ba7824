//! What perf says, as a tree of calls.

use std::collections::BTreeMap;

/// A function, as it was called from one place.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// Samples of it and of all that it called.
    pub(super) count: u64,
    /// Samples of itself.
    pub(super) own: u64,
    pub(super) is_kernel: bool,
    pub(super) calls: BTreeMap<String, Call>,
}

/// All samples: the first calls are the threads, by name.
#[derive(Debug, Default)]
pub(super) struct Stacks(pub(super) Call);

impl Stacks {
    /// Lines of a thread's name, then of its functions from the innermost to the outermost
    /// (`⇥ 3e4b20 millrun::shard::Shard::flush (/path/to/program)`), then an empty one.
    pub(super) fn of(script: &str) -> Self {
        let mut stacks = Self::default();
        for sample in script.split("\n\n") {
            let mut lines = sample.lines().filter(|line| !line.is_empty());
            let Some(thread) = lines.next() else { continue };
            let functions: Vec<_> = lines.filter_map(function).collect();
            stacks.add(thread.trim(), &functions);
        }
        stacks
    }

    fn add(&mut self, thread: &str, functions: &[(&str, bool)]) {
        let mut call = &mut self.0;
        call.count += 1;
        for (name, is_kernel) in [(thread, false)].iter().chain(functions.iter().rev()) {
            call = call.calls.entry((*name).to_owned()).or_default();
            call.count += 1;
            call.is_kernel = *is_kernel;
        }
        call.own += 1;
    }

    pub(super) fn count(&self) -> u64 {
        self.0.count
    }

    /// Functions by their own samples, the most first.
    pub(super) fn busiest(&self) -> Vec<(&str, u64)> {
        let mut counts = BTreeMap::new();
        for thread in self.0.calls.values() {
            thread.own_of_calls(&mut counts);
        }
        let mut counts: Vec<_> = counts.into_iter().filter(|(_, own)| *own > 0).collect();
        counts.sort_by_key(|(_, own)| std::cmp::Reverse(*own));
        counts
    }
}

impl Call {
    fn own_of_calls<'a>(&'a self, counts: &mut BTreeMap<&'a str, u64>) {
        for (name, call) in &self.calls {
            *counts.entry(name).or_default() += call.own;
            call.own_of_calls(counts);
        }
    }

    /// How many calls lie within each other, at most.
    pub(super) fn depth(&self) -> usize {
        self.calls
            .values()
            .map(|call| 1 + call.depth())
            .max()
            .unwrap_or(0)
    }
}

/// The name of a function and whether it is the kernel's; none of what perf does not know.
fn function(line: &str) -> Option<(&str, bool)> {
    let (_address, rest) = line.trim_start().split_once(' ')?;
    let (name, object) = rest.rsplit_once(" (")?;
    (name != "[unknown]").then(|| (name, is_kernel(object.trim_end_matches(')'))))
}

/// The kernel is `[kernel.kallsyms]`, its modules `[ext4]` or a file. What else stands in brackets is
/// memory of the program.
fn is_kernel(object: &str) -> bool {
    const OF_THE_PROGRAM: [&str; 4] = ["[vdso]", "[unknown]", "[heap]", "[stack]"];
    let is_named = object.starts_with('[') && object.ends_with(']');
    is_named && !OF_THE_PROGRAM.contains(&object) || object.ends_with(".ko")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "millrun-parts \n\
        \t          4c8bf0 malloc (/usr/lib/libc.so.6)\n\
        \t          5097dc millrun::shard::Shard::flush (/t/bench-workflows)\n\
        \t          1f120 [unknown] (/usr/lib/libc.so.6)\n\
        \n\
        millrun-parts \n\
        \tffffffff821f2fa7 do_sync ([kernel.kallsyms])\n\
        \t          5097dc <millrun::shard::Shard as Part>::turn (closure) (/t/bench-workflows)\n\
        \n\
        millrun-parts \n\
        \t          5097dc millrun::shard::Shard::flush (/t/bench-workflows)\n\
        \n";

    #[test]
    fn samples_are_added_up_from_the_thread_inwards() {
        let stacks = Stacks::of(SCRIPT);
        assert_eq!((stacks.count(), stacks.0.depth()), (3, 3));
        let thread = &stacks.0.calls["millrun-parts"];
        let flush = &thread.calls["millrun::shard::Shard::flush"];
        assert_eq!((flush.count, flush.own, flush.calls["malloc"].own), (2, 1, 1));
        let turn = &thread.calls["<millrun::shard::Shard as Part>::turn (closure)"];
        assert!(turn.calls["do_sync"].is_kernel && !turn.is_kernel);
    }

    #[test]
    fn the_kernels_modules_are_the_kernel_and_the_programs_memory_is_not() {
        let is_kernel = |object: &str| function(&format!("\t 1f120 f ({object})")).unwrap().1;
        for object in [
            "[kernel.kallsyms]",
            "[guest.kernel.kallsyms]",
            "[ext4]",
            "/lib/modules/6.1/ext4.ko",
        ] {
            assert!(is_kernel(object), "{object}");
        }
        for object in ["[vdso]", "[unknown]", "[heap]", "[stack]", "/usr/lib/libc.so.6"] {
            assert!(!is_kernel(object), "{object}");
        }
    }

    #[test]
    fn the_busiest_functions_count_their_own_samples_only() {
        let stacks = Stacks::of(SCRIPT);
        let names: Vec<_> = stacks.busiest();
        assert_eq!(names.len(), 3);
        assert!(names.contains(&("do_sync", 1)) && names.contains(&("malloc", 1)));
    }
}
