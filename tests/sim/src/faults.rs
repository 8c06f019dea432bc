//! Every kind of fault that the world can inject, with a count of how often it really happened.

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $word:literal;)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// All kinds.
            pub const ALL: &'static [Fault] = &[$(Fault::$name,)*];

            /// The kind's name in reports.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }
    };
}

faults! {
    /// The process ends between two steps; what was written survives.
    Kill = "kill";
    /// The power goes between two steps; what was not synced may be gone.
    PowerLoss = "power_loss";
    /// The process ends within a commit.
    KillInCommit = "kill_in_commit";
    /// The power goes within a commit.
    PowerLossInCommit = "power_loss_in_commit";
    /// A power loss left a torn or reordered tail behind.
    TornSectors = "torn_sectors";
    /// The process ends while it recovers.
    KillInRecovery = "kill_in_recovery";
    /// The power goes while it recovers.
    PowerLossInRecovery = "power_loss_in_recovery";
    /// The process ends while the archiver works.
    KillInArchiving = "kill_in_archiving";
    /// The power goes while the archiver works.
    PowerLossInArchiving = "power_loss_in_archiving";
    /// A step of the archiver fails and is tried again.
    ArchiverFailed = "archiver_failed";
    /// A write of the journal fails.
    FailedWrite = "failed_write";
    /// A write of the journal is cut short and fails.
    ShortWrite = "short_write";
    /// The journal cannot be synced.
    FailedSync = "failed_sync";
    /// The disk has no room for a batch.
    DiskFull = "disk_full";
    /// The log is behind its bounds: reserves are refused.
    Pressure = "pressure";
    /// A clean stop and start.
    CleanStop = "clean_stop";
    /// A start with another number of shards.
    OtherShards = "other_shards";
    /// The wall clock steps back or ahead before a start.
    ClockStep = "clock_step";
    /// The wall clock drifts against the engine's.
    ClockSkew = "clock_skew";
    /// A shard does nothing for a while.
    ShardStall = "shard_stall";
    /// Units stay aside as with another shard's unfinished turn.
    TurnStall = "turn_stall";
    /// A commit takes long.
    SlowCommit = "slow_commit";
    /// A message takes long.
    Delay = "delay";
    /// A later message arrives first, on another connection.
    Reorder = "reorder";
    /// A request never arrives.
    LostRequest = "lost_request";
    /// An answer never arrives.
    LostAnswer = "lost_answer";
    /// A request arrives twice.
    Duplicate = "duplicate";
    /// A connection is cut with requests in flight.
    Cut = "cut";
    /// A request comes to a shard that does not own it.
    WrongShard = "wrong_shard";
    /// Bytes arrive in pieces.
    Pieces = "pieces";
    /// A client stops reading its answers.
    SlowClient = "slow_client";
    /// A consumer of the feed stops reading or granting.
    SlowConsumer = "slow_consumer";
    /// A consumer's connection breaks.
    DeadConsumer = "dead_consumer";
    /// The database cannot be reached.
    SqlAway = "sql_away";
    /// A transaction lost against another.
    SqlRetry = "sql_retry";
    /// A row is refused.
    SqlRefused = "sql_refused";
    /// The database says what the writer must stop at.
    SqlBug = "sql_bug";
    /// A commit was carried out and its answer lost.
    SqlAmbiguous = "sql_ambiguous";
    /// A commit was lost and its answer too.
    SqlLostCommit = "sql_lost_commit";
    /// Another writer takes over.
    SqlFenced = "sql_fenced";
    /// The writer's process ends.
    WriterKill = "writer_kill";
}

/// How often each happened.
#[derive(Clone, Debug)]
pub struct Counts([u64; Fault::ALL.len()]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; Fault::ALL.len()])
    }
}

impl Counts {
    /// It happened.
    pub const fn hit(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// How often it happened.
    pub const fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Kinds that never happened.
    pub fn missing(&self) -> Vec<&'static str> {
        Fault::ALL.iter().filter(|fault| self.of(**fault) == 0).map(|fault| fault.word()).collect()
    }
}
