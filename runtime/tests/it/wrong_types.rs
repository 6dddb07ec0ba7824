//! Values that come by name and are not of the types that the code takes.

use millrun::workflow::Unanswered;
use millrun::{
    Payload, Query, QueryError, RunError, Runtime, RuntimeBuilder, Signal, StartError, StartWithSignalError,
    StartWithUpdateError, Update, UpdateError, Workflow, WorkflowContext, WorkflowError,
};

use crate::support::Store;

const ORDER: Workflow<u64, String> = Workflow::named("order");
const PAID: Signal<u64> = Signal::named("paid");
const NOTE: Signal<String> = Signal::named("note");
const TOTAL: Query<u64, u64, u64> = Query::named("total");
const ADD: Update<u64, u64, u64> = Update::named("add");

async fn order(cx: WorkflowContext, first: u64) -> Result<String, WorkflowError> {
    let sum = cx.state(first);
    let paid = cx.receive(PAID).await?;
    let note = cx.receive(NOTE).await?;
    Ok(format!("{} {paid} {note}", sum.read(|sum| *sum)))
}

fn with_code(builder: RuntimeBuilder) -> RuntimeBuilder {
    let order_of = ORDER
        .signal(PAID)
        .query(TOTAL, |sum, times| sum * times)
        .update(ADD);
    builder.register(
        order_of.change(|sum, more| {
            *sum += more;
            *sum
        }),
        order,
    )
}

fn text() -> Payload {
    Payload::encode("seven").unwrap()
}

fn number(number: u64) -> Payload {
    Payload::encode(&number).unwrap()
}

fn names(error: &impl std::error::Error, taker: &str) {
    let error = error.to_string();
    let expected = format!("{taker} takes a value of the type u64: ");
    assert!(error.starts_with(&expected), "{error}");
}

#[tokio::test]
async fn what_is_not_of_the_type_of_the_code_is_refused_by_name_and_leaves_no_trace() {
    // In memory, and on disk.
    for hot_len_max in [100, 0] {
        let store = Store::new();
        let builder = with_code(store.bare()).configure(|config| config.hot_len_max = hot_len_max);
        let runtime = builder.start().await.unwrap();
        let start = |input: Payload| runtime.start_untyped("order", "o", input);

        let Err(StartError::WrongType(wrong)) = start(text()).await else {
            panic!("it was started");
        };
        names(&wrong, "the workflow \"order\"");
        assert_eq!((wrong.expected, &*wrong.taker), ("u64", "the workflow \"order\""));
        for by_signal in [
            start(text()).with_signal_untyped("paid", number(1)).await,
            start(number(1)).with_signal_untyped("paid", text()).await,
        ] {
            let error = by_signal.unwrap_err();
            assert!(
                matches!(
                    &error,
                    StartWithSignalError::Start(StartError::WrongType(_))
                        | StartWithSignalError::Signal(RunError::WrongType(_))
                ),
                "{error:?}"
            );
            assert!(!error.is_retryable());
        }
        let updated = start(number(1)).with_update_untyped("add", "r", text()).await;
        let Err(StartWithUpdateError::Update(UpdateError::Run(RunError::WrongType(wrong)))) = updated else {
            panic!("{updated:?}");
        };
        names(&wrong, "the update \"add\"");
        assert_eq!(runtime.stats().started, 0);

        let run = start(number(1)).await.unwrap();
        let events = runtime.stats().events;
        let Err(RunError::WrongType(wrong)) = run.signal("paid", text()).await else {
            panic!("it was recorded");
        };
        names(&wrong, "the signal \"paid\"");
        for request in ["r", "s"] {
            let signal = run.signal_as("paid", request, text()).await;
            assert!(matches!(signal, Err(RunError::WrongType(_))), "{signal:?}");
        }
        let attached = start(number(1)).with_signal_untyped("paid", text()).await;
        assert!(
            matches!(
                attached,
                Err(StartWithSignalError::Signal(RunError::WrongType(_)))
            ),
            "{attached:?}"
        );
        let update = run.update_as("add", "r", text()).await;
        assert!(
            matches!(&update, Err(UpdateError::Run(RunError::WrongType(_)))),
            "{update:?}"
        );
        let Err(QueryError::Unanswered(Unanswered::WrongType(wrong))) = run.query("total", text()).await
        else {
            panic!("it was answered");
        };
        names(&wrong, "the query \"total\"");
        assert_eq!(runtime.stats().events, events, "nothing was recorded");

        // The same names, with values of the right type; and a signal that is not declared takes any.
        assert_eq!(run.update_as("add", "r", number(6)).await.unwrap(), number(7));
        run.signal_as("paid", "r", number(7)).await.unwrap();
        run.signal("unknown", text()).await.unwrap();
        run.signal("note", text()).await.unwrap();
        let result: String = run.result().await.unwrap().decode().unwrap();
        assert_eq!(result, "7 7 seven");
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn what_a_workflow_takes_that_is_not_registered_nobody_knows() {
    let store = Store::new();
    let runtime: Runtime = store.bare().start().await.unwrap();
    let run = runtime.start_untyped("order", "o", text()).await.unwrap();
    run.signal("paid", text()).await.unwrap();
    drop((run, runtime));
    let runtime = with_code(store.bare()).start().await.unwrap();
    let failed = runtime.attach(ORDER, "o").unwrap().result().await;
    assert!(failed.is_err(), "{failed:?}");
    runtime.shutdown().await.unwrap();
}
