//! Each cause of `why`, as the page of a run says it.

use axum::Router;
use millrun_http::{Access, router};
use tokio::net::TcpListener;

use crate::TURN;
use crate::causes::{CAUSES, Causes};
use crate::driver::Browser;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_cause_is_named_on_the_page_of_its_run() {
    let _turn = TURN.lock().await;
    let Some(browser) = Browser::start() else { return };
    let causes = Causes::new().await;
    let app: Router = router(&causes.runtime, Access::operator());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    for cause in CAUSES {
        browser.go(&format!("http://{address}/console#/instances/{}", cause.id));
        browser.until_shown(cause.says);
    }
    browser.until_shown("waits for the request to cancel");
    assert_eq!(browser.messages(), Vec::<String>::new());
    server.abort();
}
