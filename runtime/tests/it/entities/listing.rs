//! Listing: by the beginning of the key, in pages, without the deleted ones.

use std::collections::BTreeSet;

use millrun::Runtime;

use super::{PUT, PUTS, TILL, till};

#[tokio::test]
async fn entities_are_listed_by_prefix_in_pages() {
    let builder = Runtime::volatile().entity(till()).durable_topic(PUTS);
    let runtime = builder
        .configure(|config| config.hot_len_max = 3)
        .start()
        .await
        .unwrap();
    for number in 0..25 {
        let key = format!("eu-{number:02}");
        runtime.entity(TILL, &key).call(PUT, 1).await.unwrap();
        runtime
            .entity(TILL, &format!("us-{number}"))
            .call(PUT, 1)
            .await
            .unwrap();
    }
    runtime.entity(TILL, "eu-07").delete().await.unwrap();
    let (mut keys, mut after, mut pages) = (BTreeSet::new(), None, 0);
    loop {
        let page = runtime
            .entities(TILL)
            .prefix("eu-")
            .page(after, 10)
            .await
            .unwrap();
        assert!(page.keys.len() <= 10);
        pages += 1;
        for key in page.keys {
            assert!(keys.insert(key), "each is listed once");
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let expected = (0..25)
        .filter(|number| *number != 7)
        .map(|number| format!("eu-{number:02}"));
    assert!(keys.into_iter().eq(expected));
    assert!(pages >= 3, "{pages}");
    assert_eq!(
        runtime.entities(TILL).page(None, 1_000).await.unwrap().keys.len(),
        49
    );
    runtime.shutdown().await.unwrap();
}
