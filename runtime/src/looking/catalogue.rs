//! The catalogue: what is registered in this program, and so can be started, asked, called and published to.

use millrun_workflow::Implementation;

use crate::Runtime;
use crate::code::workflows::is_reserved;
use crate::shared::ShardShared;

/// What is registered in this program, without built-in code, each list in the order of its names; returned by
/// [`Runtime::catalogue`]. The store may have runs of other workflows, which wait for a program with their code.
///
/// Names of types are the compiler's, for people: a new compiler may change them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Catalogue {
    /// The workflows.
    pub workflows: Vec<CatalogueWorkflow>,
    /// The activities.
    pub activities: Vec<CatalogueActivity>,
    /// The task queues, those of activities and others.
    pub queues: Vec<String>,
    /// The topics that workflows may publish to, by name.
    pub topics: Vec<String>,
    /// The durable topics, by name; [`Runtime::durable_topics`] tells more.
    pub durable_topics: Vec<String>,
    /// The filters of topics whose names are known at run time only.
    pub topic_filters: Vec<String>,
}

/// A workflow that is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CatalogueWorkflow {
    /// Its name.
    pub name: &'static str,
    /// The newest registered version, to which the other fields belong: new runs get it. [`Runtime::versions`] shows the
    /// others.
    pub version: u32,
    /// The type of its input.
    pub input: &'static str,
    /// The type of its result.
    pub result: &'static str,
    /// The queries that it answers.
    pub queries: Vec<&'static str>,
    /// The updates that it takes.
    pub updates: Vec<&'static str>,
    /// The commands that it performs, if it is an [entity](crate::Entity).
    pub commands: Vec<&'static str>,
    /// The signals that it declares. It may receive others.
    pub signals: Vec<CatalogueSignal>,
}

/// A signal that a workflow [declares](crate::builders::AnsweringWorkflow::signal).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CatalogueSignal {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub value: &'static str,
}

/// An activity that is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CatalogueActivity {
    /// Its name.
    pub name: &'static str,
    /// Its own task queue; a call may name another one.
    pub queue: &'static str,
}

impl From<&Implementation> for CatalogueWorkflow {
    fn from(implementation: &Implementation) -> Self {
        Self {
            name: implementation.name(),
            version: implementation.version(),
            input: implementation.input_type(),
            result: implementation.result_type(),
            queries: implementation.queries().collect(),
            updates: implementation.updates().collect(),
            commands: implementation.commands().collect(),
            signals: implementation
                .signals()
                .map(|(name, value)| CatalogueSignal { name, value })
                .collect(),
        }
    }
}

impl ShardShared {
    fn catalogue(&self) -> Catalogue {
        let activities = self.queues.activities();
        let (topics, topic_filters) = self.topics.names_and_filters();
        Catalogue {
            workflows: self
                .workflows
                .newest()
                .filter(|workflow| !is_reserved(workflow.name()))
                .map(CatalogueWorkflow::from)
                .collect(),
            activities: activities
                .filter(|(name, _)| !is_reserved(name))
                .map(|(name, queue)| CatalogueActivity { name, queue })
                .collect(),
            queues: self
                .queues
                .all()
                .iter()
                .map(|queue| queue.name.to_string())
                .filter(|name| !is_reserved(name))
                .collect(),
            topics,
            durable_topics: self.durable.iter().map(|(name, _)| name.to_owned()).collect(),
            topic_filters,
        }
    }
}

impl Runtime {
    /// Lists what is registered in this program.
    ///
    /// ```
    /// # use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().register(DOUBLE, double).start().await?;
    /// let catalogue = runtime.catalogue();
    /// assert_eq!(catalogue.workflows[0].name, "double");
    /// assert_eq!(catalogue.workflows[0].input, "u64");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn catalogue(&self) -> Catalogue {
        self.inner().shared.catalogue()
    }

    /// Whether code for the workflow of this name is registered in this program. A run without code waits until a program
    /// with the code opens its store, so check this before a start by a name that was typed in.
    #[must_use]
    pub fn has_workflow(&self, name: &str) -> bool {
        self.inner().shared.is_registered(name)
    }
}
