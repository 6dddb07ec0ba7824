//! Pages and bounds of traces, against the whole graph in the test's memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use millrun::operating::{TraceBounds, TraceDirection, TraceLink, TraceOf, TraceRelation};
use millrun::{
    Activity, ActivityContext, ActivityError, Runtime, RuntimeBuilder, Workflow, WorkflowContext,
    WorkflowError,
};

use super::{PACKED, PLACED, walked};

/// Starts children down to zero, each with an activity, a publish and a timer.
const TREE: Workflow<(u64, u64), u64> = Workflow::named("tree");
const LEAF: Activity<u64, u64> = Activity::named("leaf");
/// Its input is how many records it takes, of any key.
const EACH: Workflow<u64, u64> = Workflow::named("each");

async fn leaf(_cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    match number % 3 {
        0 => Err(ActivityError::fatal("three")),
        _ => Ok(number),
    }
}

async fn tree(cx: WorkflowContext, (depth, width): (u64, u64)) -> Result<u64, WorkflowError> {
    let mut sum = cx.call(LEAF, depth).await.unwrap_or(0);
    cx.publish(PACKED, depth).await?;
    cx.sleep(Duration::from_micros(1)).await?;
    if depth > 0 {
        for nth in 0..width {
            let id = format!("{}-{nth}", cx.instance_id());
            sum += cx.child(TREE, id, (depth - 1, width)).await?;
        }
    }
    Ok(sum)
}

async fn each(cx: WorkflowContext, len: u64) -> Result<u64, WorkflowError> {
    for _ in 0..len {
        cx.receive_from(PLACED).await?;
    }
    Ok(len)
}

fn told(builder: RuntimeBuilder) -> RuntimeBuilder {
    let builder = builder.durable_topic(PLACED).durable_topic(PACKED);
    builder
        .register(TREE, tree)
        .register(EACH, each)
        .register(LEAF, leaf)
}

/// All links of something, page by page, and how many pages that took.
async fn all(
    runtime: &Runtime,
    of: &TraceOf,
    bounds: &TraceBounds,
) -> (Vec<TraceLink>, Vec<TraceLink>, usize) {
    let (mut causes, mut effects, mut pages, mut after) = (Vec::new(), Vec::new(), 0, None);
    loop {
        let page = runtime.trace(of.clone(), after, bounds).await.unwrap();
        assert!(
            page.causes.len() + page.effects.len() <= bounds.links_len_max,
            "{page:?}"
        );
        causes.extend(page.causes);
        effects.extend(page.effects);
        pages += 1;
        match page.next {
            Some(next) => after = Some(next.to_string().parse().unwrap()),
            None => return (causes, effects, pages),
        }
    }
}

#[tokio::test]
async fn pages_of_any_size_come_to_the_whole_graph_and_nothing_twice() {
    let runtime = told(Runtime::volatile()).start().await.unwrap();
    let run = runtime.start(TREE, "t", (3, 3)).await.unwrap();
    run.result().await.unwrap();
    let root = TraceOf::Run(run.run_id().unwrap());
    // The whole graph, walked by hand with bounds that nothing reaches.
    let whole = TraceBounds::default();
    let mut graph: BTreeMap<TraceOf, Vec<TraceOf>> = BTreeMap::new();
    let mut order = Vec::new();
    let mut line = VecDeque::from([root.clone()]);
    let mut links = BTreeMap::new();
    while let Some(of) = line.pop_front() {
        if graph.contains_key(&of) {
            continue;
        }
        let (causes, effects, pages) = all(&runtime, &of, &whole).await;
        assert_eq!(pages, 1);
        let ends: Vec<_> = effects.iter().filter_map(|link| link.to.clone()).collect();
        line.extend(ends.iter().cloned());
        graph.insert(of.clone(), ends);
        links.insert(of.clone(), (causes, effects));
        order.push(of);
    }
    // 40 runs, each with a record.
    assert_eq!(graph.len(), 80);
    let (_, effects) = &links[&root];
    let count = |relation| effects.iter().filter(|link| link.relation == relation).count();
    let relations = [
        TraceRelation::Activity,
        TraceRelation::Published,
        TraceRelation::Timer,
        TraceRelation::Child,
    ];
    assert_eq!(relations.map(count), [1, 1, 1, 3]);
    let nodes = walked(&runtime, root.clone(), TraceDirection::Effects).await;
    assert_eq!(
        nodes.iter().map(|node| node.of.clone()).collect::<Vec<_>>(),
        order
    );
    for node in &nodes {
        let from = node.from.map(|from| &nodes[from]);
        assert_eq!(from.map_or(0, |from| from.depth + 1), node.depth);
        assert!(from.is_none_or(|from| graph[&from.of].contains(&node.of)));
    }
    for (links_len_max, events_len_max, runs_len_max) in
        [(1, 1, 1), (1, 100, 7), (2, 3, 2), (3, 5, 1_000), (7, 2, 3)]
    {
        let mut bounds = TraceBounds::default();
        (bounds.links_len_max, bounds.events_len_max) = (links_len_max, events_len_max);
        bounds.runs_len_max = runs_len_max;
        for of in [&root, &order[1], &order[order.len() - 1]] {
            let (causes, effects, pages) = all(&runtime, of, &bounds).await;
            assert!(pages > 1);
            let keys = |links: &[TraceLink]| -> Vec<_> {
                let key = |link: &TraceLink| (link.relation, link.name.clone(), link.operation);
                links.iter().map(key).collect()
            };
            let (all_causes, all_effects) = &links[of];
            assert_eq!(keys(&causes), keys(all_causes), "{of:?} {bounds:?}");
            assert_eq!(keys(&effects), keys(all_effects), "{of:?} {bounds:?}");
        }
    }
    // A walk that is cut says so, and gives the nearest.
    for (depth_max, nodes_max, len) in [(1, 1_000, 5), (32, 7, 7), (0, 9, 1)] {
        let mut walk = runtime.trace_walk(
            root.clone(),
            TraceDirection::Effects,
            depth_max,
            nodes_max,
            &whole,
        );
        let mut given = Vec::new();
        while let Some(node) = walk.next().await.unwrap() {
            given.push(node.of);
        }
        assert_eq!(given, order[..len]);
        assert!(walk.is_cut());
    }
    runtime.shutdown().await.unwrap();
}

/// Who took a record is looked for a few runs at a time; each page says how many, and all of them find all.
#[tokio::test]
async fn the_runs_that_took_a_record_are_found_a_few_runs_at_a_time_and_nobody_is_woken() {
    let builder = told(Runtime::volatile()).configure(|config| config.hot_len_max = 0);
    let runtime = builder.start().await.unwrap();
    let topic = runtime.durable_topic(PLACED).unwrap();
    let mut takers = BTreeSet::new();
    for nth in 0..20 {
        // Some end with the first record, some wait for a second.
        let run = runtime
            .start(EACH, &format!("each-{nth}"), 1 + nth % 2)
            .await
            .unwrap();
        takers.insert(TraceOf::Run(run.run_id().unwrap()));
    }
    let record = topic.publish(&1).await.unwrap().token();
    for nth in (0..20).step_by(2) {
        let run = runtime.attach(EACH, &format!("each-{nth}")).unwrap();
        run.result().await.unwrap();
    }
    while runtime.stats().events < 20 * 3 + 20 {
        tokio::task::yield_now().await;
    }
    let before = runtime.stats();
    for runs_len_max in [1, 3, 1_000] {
        let mut bounds = TraceBounds::default();
        bounds.runs_len_max = runs_len_max;
        let (_, effects, pages) = all(&runtime, &record.into(), &bounds).await;
        assert!(pages >= 20 / runs_len_max);
        let found: Vec<_> = effects.iter().filter_map(|link| link.to.clone()).collect();
        assert_eq!(found.len(), takers.len());
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), takers);
        assert!(
            effects
                .iter()
                .all(|link| link.relation == TraceRelation::Received)
        );
    }
    let after = runtime.stats();
    assert_eq!((after.loads, after.hot), (before.loads, before.hot));
    runtime.shutdown().await.unwrap();
}
