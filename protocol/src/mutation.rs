//! Deliberate faults, one at a time, to see that the tests find them. Compiled only with the
//! feature `mutations`, which no ordinary build has; each is one hook at the place it names.

use core::sync::atomic::{AtomicU32, Ordering};

macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// A deliberate fault.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutation {
            $($(#[$doc])* $name,)*
        }

        impl Mutation {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

mutations! {
    /// An order takes one unit less from the pool than it has.
    OversellByOne;
    /// Units that come back are given to the pool twice.
    DoubleRestock;
    /// Units that come back never reach the pool.
    LostRestock;
    /// Units are for sale before the entry that gave them back is durable.
    ReleaseBeforeDurable;
    /// Units that another turn has count as sold.
    FalseSoldOut;
    /// A limit is measured for each order alone.
    LimitForgetsTheRest;
    /// A right comes back with every return.
    RightAlwaysBack;
    /// A revived order is not held against the limit.
    ReviveIgnoresLimit;
    /// Users' chains are not rebuilt from a snapshot.
    ForgetUserAfterRestart;
    /// Withdrawn ids are not in snapshots.
    TombstonesForgotten;
    /// A withdrawn id buys.
    WithdrawnIdBuys;
    /// The deadline itself is too late.
    DeadlineExclusive;
    /// Money that came for nothing is not told.
    LatePaymentLost;
    /// A paused sale sells.
    PauseIgnored;
    /// Holds that ran out during a stop get no grace.
    GraceForgotten;
    /// Answers wait for nothing.
    AnswerRestsOnNothing;
    /// Reads wait for nothing.
    ReadRestsOnNothing;
    /// A change of the catalog is in force before it is durable.
    CatalogBeforeDurable;
    /// A batch is lost between shard and disk.
    BatchDropped;
    /// The clock may start before the log's newest entry.
    ClockForgetsLog;
    /// A commit is not synced.
    AnswerBeforeSync;
    /// Segments go before their entries are archived.
    SegmentRecycledEarly;
    /// A snapshot says that it is ahead of what is in it.
    SnapshotAhead;
    /// The feed shows an entry twice.
    FeedTwice;
    /// The feed leaves an entry out.
    FeedSkips;
    /// The writer tells the engine what is not in SQL yet.
    AckBeforeCommit;
    /// The writer loses late payments.
    LateRowLost;
}

/// The one in force, by its place in the list from 1 on; 0: none.
static CHOSEN: AtomicU32 = AtomicU32::new(0);

/// This one is in force from now on, in the whole process.
pub fn choose(mutation: Option<Mutation>) {
    CHOSEN.store(mutation.map_or(0, |mutation| mutation as u32 + 1), Ordering::SeqCst);
}

/// Is this one in force?
pub fn is(mutation: Mutation) -> bool {
    CHOSEN.load(Ordering::Relaxed) == mutation as u32 + 1
}
