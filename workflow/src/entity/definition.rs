//! What an entity is: its state, its name, its commands.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::EntityCode;
use crate::{Entity, EntityCommand, Payload, PayloadError, Query, TypedError};

/// The state of an entity, made by folding events. See [`Entity`] for an example.
///
/// Everything here is called both live and in each replay, so it must depend on its arguments alone. The encoded forms of
/// state and events are stored. A field that is added with a serde default needs nothing more; for any other change, raise
/// [`VERSION`](Self::VERSION) and convert older values in [`upcast_event`](Self::upcast_event) and
/// [`upcast_state`](Self::upcast_state).
pub trait EntityState: Serialize + DeserializeOwned + Send + 'static {
    /// What a command decides, in the past tense.
    type Event: Serialize + DeserializeOwned + Send + 'static;

    /// The version of the stored form of events and state, 1 by default. It is stored with them. Values of a later version
    /// are not read: the run is parked, and nothing is lost.
    const VERSION: u32 = 1;

    /// The state before the first event of the entity with this key.
    fn begin(key: &str) -> Self;

    /// Folds an event into the state. A panic parks the run as one of workflow code does: the event stays recorded, and is
    /// folded when the run is resumed.
    fn apply(&mut self, event: Self::Event);

    /// Converts an event that an earlier version has stored. By default it must decode as the present type.
    ///
    /// # Errors
    /// When it cannot be converted: the run is parked.
    fn upcast_event(version: u32, stored: &Payload) -> Result<Self::Event, PayloadError> {
        let _: u32 = version;
        stored.decode()
    }

    /// As [`upcast_event`](Self::upcast_event), for the state in a snapshot.
    ///
    /// # Errors
    /// When it cannot be converted: the run is parked.
    fn upcast_state(version: u32, stored: &Payload) -> Result<Self, PayloadError> {
        let _: u32 = version;
        stored.decode()
    }
}

impl<S: EntityState> Entity<S> {
    /// The id of the instance that is the entity with this key: `name/key`, of 255 bytes at most.
    ///
    /// ```
    /// # use millrun_workflow::{Entity, EntityState};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Cart;
    /// # impl EntityState for Cart {
    /// #     type Event = ();
    /// #     fn begin(_key: &str) -> Self { Self }
    /// #     fn apply(&mut self, (): ()) {}
    /// # }
    /// const CART: Entity<Cart> = Entity::named("cart");
    /// assert_eq!(CART.id_of("ada"), "cart/ada");
    /// ```
    #[must_use]
    pub fn id_of(self, key: &str) -> String {
        let mut id = String::with_capacity(self.name().len() + 1 + key.len());
        id.push_str(self.name());
        id.push('/');
        id.push_str(key);
        id
    }

    /// The key of the entity whose instance has this id; `None` if the id belongs to no entity of this definition.
    #[must_use]
    pub fn key_of(self, id: &str) -> Option<&str> {
        key_of(self.name(), id)
    }

    /// Adds the handler of this command; see [`EntityCode::command`].
    pub fn command<I, A, E, F>(self, command: EntityCommand<S, I, A, E>, handler: F) -> EntityCode<S>
    where
        I: DeserializeOwned + 'static,
        A: Serialize + 'static,
        E: TypedError,
        F: Fn(&S, I, &mut super::EntityContext<'_, S>) -> Result<A, E> + Send + Sync + 'static,
    {
        EntityCode::new(self).command(command, handler)
    }

    /// Adds the handler of this query; see [`EntityCode::query`].
    pub fn query<Q, A, F>(self, query: Query<S, Q, A>, answer: F) -> EntityCode<S>
    where
        Q: DeserializeOwned,
        A: Serialize,
        F: Fn(&S, Q) -> A + Send + Sync + 'static,
    {
        EntityCode::new(self).query(query, answer)
    }
}

/// The key in the id of an instance, for the entity with this name.
pub(crate) fn key_of<'a>(name: &str, id: &'a str) -> Option<&'a str> {
    id.strip_prefix(name)?.strip_prefix('/')
}
