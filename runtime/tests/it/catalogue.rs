//! What is registered is told.

use millrun::operating::Catalogue;
use millrun::{
    Activity, ActivityContext, ActivityError, Query, Runtime, Signal, Topic, Update, Workflow,
    WorkflowContext, WorkflowError,
};

#[tokio::test]
async fn all_that_is_registered_is_told_in_the_order_of_its_names() {
    const CART: Workflow<Vec<String>, usize> = Workflow::named("cart");
    const ALONE: Workflow<(), ()> = Workflow::named("alone");
    const LEN: Query<Vec<String>, (), usize> = Query::named("len");
    const FIRST: Query<Vec<String>, (), Option<String>> = Query::named("first");
    const ADD: Update<Vec<String>, String, usize> = Update::named("add");
    const PAID: Signal<u64> = Signal::named("paid");
    const GIVEN_UP: Signal<()> = Signal::named("given up");
    const SHIP: Activity<(), ()> = Activity::named("ship").on_queue("parcels");
    const CHARGE: Activity<(), ()> = Activity::named("charge");
    const PLACED: Topic<u64> = Topic::named("orders.placed");
    async fn cart(_cx: WorkflowContext, first: Vec<String>) -> Result<usize, WorkflowError> {
        Ok(first.len())
    }
    async fn alone(_cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        Ok(())
    }
    async fn done(_cx: ActivityContext, (): ()) -> Result<(), ActivityError> {
        Ok(())
    }
    let cart_of = CART
        .signal(PAID)
        .signal(GIVEN_UP)
        .query(LEN, |items, ()| items.len())
        .query(FIRST, |items, ()| items.first().cloned())
        .update(ADD)
        .change(|items, item| {
            items.push(item);
            items.len()
        });
    let runtime = Runtime::volatile()
        .register(cart_of, cart)
        .register(ALONE, alone)
        .register(SHIP, done)
        .register(CHARGE, done)
        .queue("tenant-1")
        .topic(PLACED)
        .topics::<u64>("users.*.notices")
        .start()
        .await
        .unwrap();
    let Catalogue {
        workflows,
        activities,
        queues,
        topics,
        topic_filters,
        ..
    } = runtime.catalogue();
    let [alone, cart] = &workflows[..] else {
        panic!("{workflows:?}");
    };
    assert_eq!((alone.name, alone.input, alone.result), ("alone", "()", "()"));
    assert!(alone.queries.is_empty() && alone.updates.is_empty() && alone.signals.is_empty());
    let signals: Vec<_> = cart.signals.iter().map(|one| (one.name, one.value)).collect();
    assert_eq!(signals, [("given up", "()"), ("paid", "u64")]);
    assert_eq!((cart.name, cart.result), ("cart", "usize"));
    assert_eq!(cart.input, std::any::type_name::<Vec<String>>());
    assert_eq!(
        (&cart.queries[..], &cart.updates[..]),
        (&["first", "len"][..], &["add"][..])
    );
    let activities: Vec<_> = activities.iter().map(|one| (one.name, one.queue)).collect();
    assert_eq!(activities, [("charge", "default"), ("ship", "parcels")]);
    assert_eq!(queues, ["default", "parcels", "tenant-1"]);
    assert_eq!(topics, ["orders.placed"]);
    assert_eq!(topic_filters, ["users.*.notices"]);
}
