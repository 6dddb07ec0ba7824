//! The names that most programs with workflows need: `use millrun::prelude::*;`.
//!
//! ```
//! use millrun::prelude::*;
//!
//! const GREET: Activity<String, String> = Activity::named("greet");
//! const WELCOME: Workflow<String, String> = Workflow::named("welcome");
//!
//! async fn welcome(cx: WorkflowContext, name: String) -> Result<String, WorkflowError> {
//!     Ok(cx.call(GREET, name).await?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::volatile()
//!     .register(GREET, async |_cx, name| Ok(format!("Hello, {name}!")))
//!     .register(WELCOME, welcome)
//!     .start()
//!     .await?;
//! let run = runtime.start(WELCOME, "welcome-ada", "Ada".to_string()).await?;
//! assert_eq!(run.result().await?, "Hello, Ada!");
//! # Ok(())
//! # }
//! ```

pub use crate::{
    Activity, ActivityContext, ActivityError, OnConflict, Query, Retry, RunHandle, Runtime, Signal, Topic,
    TypedError, Update, Workflow, WorkflowContext, WorkflowError,
};
