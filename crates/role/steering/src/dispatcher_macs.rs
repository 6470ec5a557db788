//! MAC addresses of all dispatchers, as far as a dispatcher knows them.

use skep_wire::message::Mac;

/// MAC addresses of the dispatchers whose heartbeats were received, and for those that are missing the
/// addresses in earlier tables. Without the latter, a table of a dispatcher that has just started would treat
/// the machine of a paused or failed dispatcher as an address conflict, and yield to it for as long as it
/// answers for the addresses.
pub(crate) fn dispatcher_macs(heard: Vec<Mac>, unheard: usize, earlier: &[Mac]) -> Vec<Mac> {
    let of_unheard = earlier.iter().filter(|mac| !heard.contains(mac)).take(unheard);
    let mut macs: Vec<Mac> = of_unheard.copied().chain(heard.iter().copied()).collect();
    macs.sort_unstable();
    macs.dedup();
    macs
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Mac = [2, 0, 0, 0, 0, 9];
    const PAUSED: Mac = [2, 0, 0, 0, 0, 1];
    const REPLACED: Mac = [2, 0, 0, 0, 0, 2];

    #[test]
    fn a_dispatcher_that_was_not_heard_keeps_the_device_that_earlier_tables_name() {
        assert_eq!(dispatcher_macs(vec![OWN], 1, &[PAUSED, OWN]), [PAUSED, OWN]);
        assert_eq!(dispatcher_macs(vec![PAUSED, OWN], 0, &[PAUSED, OWN]), [PAUSED, OWN]);
        assert_eq!(dispatcher_macs(vec![OWN], 1, &[]), [OWN]);
    }

    #[test]
    fn a_device_that_no_dispatcher_has_any_more_is_forgotten_once_all_were_heard() {
        assert_eq!(dispatcher_macs(vec![PAUSED, OWN], 0, &[REPLACED, OWN]), [PAUSED, OWN]);
        assert_eq!(dispatcher_macs(vec![OWN], 1, &[PAUSED, REPLACED]), [PAUSED, OWN]);
    }
}
