//! Each cause of `why`, in a real run: what the API says is what the library says.

use axum::Router;
use millrun_http::{Access, router};
use serde_json::Value;

use crate::causes::{CAUSES, Causes};
use crate::support::get;

#[tokio::test]
async fn each_cause_is_named_by_the_library_and_by_the_api() {
    let causes = Causes::new().await;
    let app: Router = router(&causes.runtime, Access::read_only());
    for cause in CAUSES {
        let id = cause.id;
        let why = causes.why(id).await;
        let text = why.to_string();
        assert!(text.contains(cause.says), "{id}: {text}");

        let told = get(&app, &format!("/v1/instances/{id}/why")).await.json();
        let [wait] = &told["waits"].as_array().unwrap()[..] else {
            panic!("{id}: {told}");
        };
        assert_eq!(kind(wait), cause.kind, "{id}: {told}");
        let sentence = wait["sentence"].as_str().unwrap();
        assert!(sentence.contains(cause.says), "{id}: {sentence}");
        assert!(told["text"].as_str().unwrap().contains(sentence), "{id}: {told}");
    }
    let told = get(&app, "/v1/instances/parent/why").await.json();
    let leaf = &told["waits"][0]["why"];
    assert_eq!(
        (&leaf["id"], kind(&leaf["waits"][0]).as_str()),
        (&"leaf".into(), "signal")
    );
}

/// The kind of a wait, of an activity also where the attempt stands.
fn kind(wait: &Value) -> String {
    let kind = wait["kind"].as_str().unwrap();
    match wait["standing"]["kind"].as_str() {
        Some(standing) => format!("{kind} {standing}"),
        None => kind.to_owned(),
    }
}
