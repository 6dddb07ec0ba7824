//! From the options to a runtime with all programs, and what listens to it.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrun::broker::{Broker, BrokerConfig, SubscriptionConfig};
use millrun::host::{Host, HostConfig, TokioHost};
use millrun::operating::{PartChange, PartEvent};
use millrun::store::RedbJournal;
use millrun::{ActivityContext, ActivityError, Runtime, RuntimeBuilder, RuntimeConfig};
use tokio::sync::mpsc;

use super::clock::{ChaosClock, ClockedHost};
use super::disk::ChaosDisk;
use super::{Seams, WorkerOptions, reports};
use crate::programs::{self, Effect, World};
use crate::wire::{Ran, Report};

/// A runtime, and what else the worker holds.
pub(super) struct Opened {
    pub(super) runtime: Runtime,
    /// Numbers that come back when all that was published before has been reported.
    pub(super) fence: Fence,
    pub(super) seams: Seams,
}

/// Asks the subscription's task how far it is.
pub(super) type Fence = mpsc::Sender<tokio::sync::oneshot::Sender<()>>;

/// Opens the store, with the faults that the options ask for.
///
/// # Errors
/// When it cannot be opened.
pub(super) async fn open(options: &WorkerOptions) -> Result<Opened, Box<dyn Error>> {
    let mut seams = Seams::default();
    let mut builder = programs::at(&options.store).config(config(options));
    let mut world = World {
        life: options.life,
        ..World::none()
    };
    let broker = if let Some(offset_ms) = options.clock_ms {
        let mut config = HostConfig::default();
        config.own_thread = options.shards_len == 1;
        let clock = Arc::new(ChaosClock::new(offset_ms));
        seams.clock = Some(Arc::clone(&clock));
        let host = Arc::new(ClockedHost::new(TokioHost::spawn(config).await?, clock));
        let told = Arc::clone(&host);
        world.now_us = Arc::new(move || told.now().as_micros());
        builder = builder.host(Arc::clone(&host) as Arc<dyn Host>);
        Broker::new(BrokerConfig::default(), host)
    } else {
        Broker::without_host(BrokerConfig::default())
    };
    if options.own_disk {
        let disk = Arc::new(ChaosDisk::open(&options.store, options.seed)?);
        seams.disk = Some(Arc::clone(&disk));
        let owner = TokioHost::spawn(HostConfig::default()).await?;
        let RuntimeConfig { journal, store, .. } = config(options);
        let journal = RedbJournal::open_disk(disk, "chaos", (journal, store), owner.host())?;
        // The journal's writer lives as long as the process.
        std::mem::forget(owner);
        builder = builder.journal(Arc::new(journal));
    }
    let fence = listen(&broker)?;
    let runtime = with_programs(builder, &world).broker(broker).start().await?;
    report_parts(&runtime)?;
    Ok(Opened {
        runtime,
        fence,
        seams,
    })
}

fn config(options: &WorkerOptions) -> RuntimeConfig {
    let mut config = RuntimeConfig::default();
    config.shards_len = options.shards_len;
    config.hot_len_max = options.hot_len_max;
    config.restarts_max = options.restarts_max;
    config.shutdown_grace = Duration::from_secs(5);
    config.replay_check_every = 7;
    // A keeper's second or third checkpoint trims its history already.
    config.limits.kept_beginning_every = 8;
    config
}

/// The programs, with activities that leave their mark in the ledger before they give anything.
fn with_programs(builder: RuntimeBuilder, world: &World) -> RuntimeBuilder {
    let (life, drawn) = (world.life, AtomicU64::new(1));
    let effect = move |cx: &ActivityContext, effect: &Effect| {
        // Different in every execution, in this process or another.
        let token = life << 40 | drawn.fetch_add(1, Ordering::Relaxed);
        reports::tell(&Report::Ran(Ran {
            id: effect.id.clone(),
            run: cx.run_id().to_string(),
            step: effect.step,
            key: cx.idempotency_key(),
            attempt: cx.attempt(),
            token,
        }));
        if token.is_multiple_of(11) {
            return Err(ActivityError::retryable("one in eleven fails"));
        }
        Ok(token)
    };
    let tell = |id: String, token: String| {
        reports::tell(&Report::Promised { id, token });
        Ok(())
    };
    programs::register(builder, world, effect, tell)
}

/// Reports what is published, from before the runtime starts on.
fn listen(broker: &Broker) -> Result<Fence, Box<dyn Error>> {
    let inbox = broker.subscribe::<u64>(programs::PARCELS.name(), SubscriptionConfig::default())?;
    let mut parcels = inbox.into_receiver();
    let (fence, mut fences) = mpsc::channel::<tokio::sync::oneshot::Sender<()>>(64);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                biased;
                parcel = parcels.recv() => match parcel {
                    Some(parcel) => reports::tell(&Report::Heard { value: *parcel.payload() }),
                    None => return,
                },
                // Nothing waits in the inbox: all that was published has been reported.
                Some(fence) = fences.recv() => drop(fence.send(())),
            }
        }
    });
    Ok(fence)
}

/// Reports each failure of a part.
fn report_parts(runtime: &Runtime) -> Result<(), Box<dyn Error>> {
    let inbox = runtime
        .broker()
        .subscribe::<PartEvent>("millrun.parts", SubscriptionConfig::default())?;
    let mut events = inbox.into_receiver();
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            if let PartChange::Failed { message } = &event.payload().change {
                reports::tell(&Report::PartFailed {
                    part: event.payload().part.clone(),
                    message: message.clone(),
                });
            }
        }
    });
    Ok(())
}
