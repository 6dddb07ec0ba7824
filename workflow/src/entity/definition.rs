//! What an entity is: its state, its name, its commands.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::EntityCode;
use crate::{Entity, EntityCommand, Payload, PayloadError, Query, TypedError};

/// The state of an entity, made by folding events. See [`Entity`] for an example.
///
/// Everything here is called live and in each replay, so it must depend on its arguments alone. The encoded forms of
/// state and events are stored: with a change that serde does not bridge (a field that is added with a default is
/// bridged), raise [`VERSION`](Self::VERSION) and bring older values up to date in
/// [`upcast_event`](Self::upcast_event) and [`upcast_state`](Self::upcast_state).
pub trait EntityState: Serialize + DeserializeOwned + Send + 'static {
    /// What a command decides, in the past tense.
    type Event: Serialize + DeserializeOwned + Send + 'static;

    /// The version of the stored form of events and state, 1 unless it is given. It is stored with them. What a later
    /// version has stored is not read: the run is parked, and nothing is lost.
    const VERSION: u32 = 1;

    /// The state before the first event of the entity with this key.
    fn begin(key: &str) -> Self;

    /// Folds an event into the state. A panic parks the run as one of workflow code does: the event stands, and is
    /// folded when the code is back.
    fn apply(&mut self, event: Self::Event);

    /// Brings an event up to date that an earlier version has stored. If this is not given, it must decode as today's.
    ///
    /// # Errors
    /// When it cannot be: the run is parked then.
    fn upcast_event(version: u32, stored: &Payload) -> Result<Self::Event, PayloadError> {
        let _: u32 = version;
        stored.decode()
    }

    /// As [`upcast_event`](Self::upcast_event), for the state in a snapshot.
    ///
    /// # Errors
    /// When it cannot be: the run is parked then.
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

    /// The key of the entity that is the instance with this id; `None` if that is none of this definition.
    #[must_use]
    pub fn key_of(self, id: &str) -> Option<&str> {
        key_of(self.name(), id)
    }

    /// The definition with what performs this command; see [`EntityCode::command`].
    pub fn command<I, A, E, F>(self, command: EntityCommand<S, I, A, E>, handler: F) -> EntityCode<S>
    where
        I: DeserializeOwned + 'static,
        A: Serialize + 'static,
        E: TypedError,
        F: Fn(&S, I, &mut super::EntityContext<'_, S>) -> Result<A, E> + Send + Sync + 'static,
    {
        EntityCode::new(self).command(command, handler)
    }

    /// The definition with what answers this query; see [`EntityCode::query`].
    pub fn query<Q, A, F>(self, query: Query<S, Q, A>, answer: F) -> EntityCode<S>
    where
        Q: DeserializeOwned,
        A: Serialize,
        F: Fn(&S, Q) -> A + Send + Sync + 'static,
    {
        EntityCode::new(self).query(query, answer)
    }
}

/// The key in the id of an instance, of the entity with this name.
pub(crate) fn key_of<'a>(name: &str, id: &'a str) -> Option<&'a str> {
    id.strip_prefix(name)?.strip_prefix('/')
}
