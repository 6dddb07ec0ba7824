//! says: the trait bound `Client: Clone` is not satisfied
use millrun::prelude::*;

struct Client;

impl Client {
    fn ask(&self, number: u64) -> u64 {
        number
    }
}

const ASK: Activity<u64, u64> = Activity::named("ask");

fn main() {
    let client = Client;
    let _builder = Runtime::volatile().register(ASK, async move |_cx, number| Ok(client.ask(number)));
}
