//! When a connection is cut: a handshake or a request that does not get complete, answers that are
//! not read. A connection that is merely silent between requests stays.

use stockade_protocol::ids::TimestampMs;

/// A peer has this long from connecting to the end of its handshake, ms.
pub const HANDSHAKE_MS_MAX: u64 = 10_000;
/// The rest of a begun request has to come within this, ms.
pub const REQUEST_MS_MAX: u64 = 10_000;
/// Answers have to be read at all within this, ms.
pub const WRITE_MS_MAX: u64 = 30_000;
/// A connection that takes nothing more stays this long for answers that are still to come, ms.
pub const END_MS_MAX: u64 = 30_000;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    handshake_since: Option<TimestampMs>,
    partial_since: Option<TimestampMs>,
    unread_since: Option<TimestampMs>,
    ends_since: Option<TimestampMs>,
}

impl Watch {
    /// A connection that begins now.
    pub const fn new(needs_handshake: bool, now: TimestampMs) -> Self {
        Self {
            handshake_since: if needs_handshake { Some(now) } else { None },
            partial_since: None,
            unread_since: None,
            ends_since: None,
        }
    }

    /// Nothing more is taken from the connection; it stays for answers that are still to come.
    pub fn ends(&mut self, now: TimestampMs) {
        self.ends_since.get_or_insert(now);
    }

    /// Bytes were used up (`consumed`), and some are left that do not make a request (`partial`).
    pub fn received(&mut self, consumed: bool, partial: bool, now: TimestampMs) {
        if consumed {
            self.handshake_since = None;
            self.partial_since = None;
        }
        if !partial {
            self.partial_since = None;
        } else if self.partial_since.is_none() {
            self.partial_since = Some(now);
        }
    }

    /// Bytes went out (`progress`), and some are left (`unread`).
    pub fn written(&mut self, progress: bool, unread: bool, now: TimestampMs) {
        if progress || !unread {
            self.unread_since = None;
        }
        if unread && self.unread_since.is_none() {
            self.unread_since = Some(now);
        }
    }

    /// Why the connection is to be cut, if it is.
    pub fn late(&self, now: TimestampMs) -> Option<&'static str> {
        let since = |since: Option<TimestampMs>, ms_max| {
            since.is_some_and(|since| now.since(since) > ms_max)
        };
        if since(self.handshake_since, HANDSHAKE_MS_MAX) {
            Some("the handshake does not come")
        } else if since(self.partial_since, REQUEST_MS_MAX) {
            Some("a request does not get complete")
        } else if since(self.unread_since, WRITE_MS_MAX) {
            Some("the answers are not read")
        } else if since(self.ends_since, END_MS_MAX) {
            Some("its last answers do not come")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> TimestampMs {
        TimestampMs::new(1_000_000 + ms)
    }

    #[test]
    fn a_byte_a_second_does_not_move_the_deadline() {
        let mut watch = Watch::new(false, at(0));
        for second in 0..11 {
            watch.received(false, true, at(second * 1000));
        }
        assert_eq!(watch.late(at(10_000)), None);
        assert!(watch.late(at(10_001)).is_some());
    }

    #[test]
    fn a_request_that_gets_complete_begins_a_new_deadline() {
        let mut watch = Watch::new(false, at(0));
        watch.received(false, true, at(0));
        watch.received(true, true, at(9_000));
        assert_eq!(watch.late(at(18_000)), None);
        watch.received(true, false, at(18_000));
        assert_eq!(watch.late(at(1_000_000)), None);
    }

    #[test]
    fn a_silent_peer_is_cut_only_before_its_handshake() {
        let mut watch = Watch::new(true, at(0));
        assert!(watch.late(at(10_001)).is_some());
        watch.received(true, false, at(1));
        assert_eq!(watch.late(at(1_000_000)), None);
        assert_eq!(Watch::new(false, at(0)).late(at(1_000_000)), None);
    }

    #[test]
    fn a_connection_that_ends_waits_for_its_answers_but_not_for_ever() {
        let mut watch = Watch::new(false, at(0));
        watch.ends(at(1_000));
        watch.ends(at(20_000));
        assert_eq!(watch.late(at(31_000)), None);
        assert!(watch.late(at(31_001)).is_some());
    }

    #[test]
    fn a_peer_that_does_not_read_is_cut_and_a_slow_one_is_not() {
        let mut watch = Watch::new(false, at(0));
        for second in 0..100 {
            watch.written(true, true, at(second * 1000));
        }
        assert_eq!(watch.late(at(100_000)), None);
        watch.written(false, true, at(110_000));
        assert!(watch.late(at(130_000)).is_some());
    }
}
