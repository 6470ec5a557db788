//! Changes that others make to the maps are found, named, and undone by writing the same again.

use std::path::Path;
use std::time::{Duration, Instant};

use aya::Pod;
use aya::maps::{Array, HashMap, LpmTrie, Map, MapData};
use skep_datapath::limits::COMPARE_ALL_MS;
use skep_datapath::{DispatchProgram, PinPath};
use skep_wire::guard::{ChangedMap, ProgramMap, Steerer};
use skep_wire::steer::{NODES_MAX, Network, Protocol, ROWS, WeightedLoad};

use crate::common::{Bed, SETTINGS, configure, in_bed, node, node_mac, rows, service};

/// Calls per second.
const CALLS: u64 = 10;

struct Scene<'b> {
    bed: &'b Bed,
    dispatch: DispatchProgram,
    now: Instant,
}

impl<'b> Scene<'b> {
    fn new(bed: &'b Bed) -> Self {
        let mut dispatch = bed.open();
        configure(&mut dispatch);
        dispatch.set_services(&[service(0), service(1)]).unwrap();
        dispatch.set_steerers(&[(node_mac(0), Steerer::Node)]).unwrap();
        let mut scene = Self { bed, dispatch, now: Instant::now() };
        scene.write_networks();
        scene
    }

    fn write_networks(&mut self) {
        let network = Network { address: "192.0.2.0".parse().unwrap(), prefix_bits: 24 };
        self.dispatch.set_networks(&[network], &[]).unwrap();
    }

    fn map(&self, name: &str) -> Map {
        let PinPath { pins } = &self.bed.place;
        pinned(&pins.join(name))
    }

    /// Returns what is found within the time of a full comparison, and how long that took.
    fn find(&mut self) -> (Vec<ChangedMap>, u64) {
        for call in 0..=COMPARE_ALL_MS / 1_000 * CALLS {
            self.now += Duration::from_millis(1_000 / CALLS);
            let changed = self.dispatch.changed(self.now).unwrap();
            if !changed.is_empty() {
                return (changed, call * 1_000 / CALLS);
            }
        }
        (Vec::new(), COMPARE_ALL_MS)
    }

    #[track_caller]
    fn finds(&mut self, map: ProgramMap, key: &str, within_ms: u64) {
        let (changed, ms) = self.find();
        assert_eq!(changed, [ChangedMap { map, key: key.to_owned() }]);
        assert!(ms <= within_ms, "{ms} ms");
    }
}

fn pinned(path: &Path) -> Map {
    Map::from_map_data(MapData::from_pin(path).unwrap()).unwrap()
}

/// Changes the value of one service.
fn change_service(map: Map, change: impl FnOnce(&mut [u8; 8])) {
    let mut map: HashMap<MapData, [u8; 20], [u8; 8]> = map.try_into().unwrap();
    let (key, mut value) = map.iter().next().unwrap().unwrap();
    change(&mut value);
    map.insert(key, value, 0).unwrap();
}

fn change_element<V: Pod>(map: Map, index: u32, change: impl FnOnce(&mut V)) {
    let mut map: Array<MapData, V> = map.try_into().unwrap();
    let mut value = map.get(&index, 0).unwrap();
    change(&mut value);
    map.set(index, value, 0).unwrap();
}

#[test]
fn nothing_that_was_written_is_a_change() {
    in_bed(|bed| {
        let mut scene = Scene::new(bed);
        assert_eq!(scene.find().0, []);
        for table in [[1], [0]] {
            scene.dispatch.set_rows(&service(0), &rows(&table)).unwrap();
            assert_eq!(scene.find().0, []);
        }
        scene.dispatch.set_services(&[service(1)]).unwrap();
        scene.dispatch.set_own(7, [2; 6]).unwrap();
        scene.dispatch.set_nodes(&[]).unwrap();
        assert_eq!(scene.find().0, []);
        // The next process has written nothing yet, so it compares nothing.
        scene.dispatch = bed.open();
        change_element(scene.map("nodes"), 3, |node: &mut [u8; 16]| node[0] = 9);
        assert_eq!(scene.find().0, []);
    });
}

#[test]
fn changes_of_small_maps_are_found_within_a_second_and_undone() {
    in_bed(|bed| {
        let mut scene = Scene::new(bed);
        assert_eq!(scene.find().0, []);
        change_element(scene.map("settings"), 0, |settings: &mut [u8; 48]| settings[0] ^= 1);
        scene.finds(ProgramMap::Settings, "0", 1_000);
        scene.dispatch.set_settings(&SETTINGS).unwrap();
        change_element(scene.map("nodes"), 1, |node: &mut [u8; 16]| node[6] = 0);
        scene.finds(ProgramMap::Nodes, "1", 1_000);
        scene.dispatch.set_nodes(&[node(0), node(1)]).unwrap();
        let mut nodes: HashMap<MapData, [u8; 6], u32> = scene.map("steerers").try_into().unwrap();
        nodes.remove(&node_mac(0)).unwrap();
        scene.finds(ProgramMap::Steerers, "02:00:00:00:0a:00", 1_000);
        scene.dispatch.set_steerers(&[(node_mac(0), Steerer::Node)]).unwrap();
        let mut vips: HashMap<MapData, [u8; 16], u32> = scene.map("vips").try_into().unwrap();
        vips.insert([9; 16], 0, 0).unwrap();
        scene.finds(ProgramMap::Vips, "909:909:909:909:909:909:909:909", 1_000);
        // The service's id, by which its flows are found.
        change_service(scene.map("services"), |service| service[0] = 9);
        let (changed, _) = scene.find();
        assert_eq!(changed.len(), 2, "{changed:?}");
        scene.dispatch.set_services(&[service(0), service(1)]).unwrap();
        assert_eq!(scene.find().0, []);
    });
}

#[test]
fn changes_of_rows_and_networks_are_found_within_the_bound_and_undone() {
    in_bed(|bed| {
        let mut scene = Scene::new(bed);
        let of_first = ProgramMap::Rows(service(0).address, Protocol::Tcp);
        let place = ROWS as u32;
        for row in [0, 65, 65_536] {
            // The table in use is the second half.
            change_element(scene.map("rows"), place + row, |row: &mut [u16; 8]| row[1] = 7);
            let from = row / 64 * 64;
            let to = (from + 63).min(65_536);
            let key = format!("{} to {}, {}", place + from, place + to, service(0).address);
            scene.finds(of_first, &key, COMPARE_ALL_MS);
            // The table is written to the other half, and then to this one again.
            scene.dispatch.set_rows(&service(0), &rows(&[1])).unwrap();
            scene.dispatch.set_rows(&service(0), &rows(&[0])).unwrap();
            assert_eq!(scene.find().0, []);
        }
        let mut networks: LpmTrie<MapData, [u8; 16], u32> =
            scene.map("networks").try_into().unwrap();
        let key = networks.keys().next().unwrap().unwrap();
        networks.insert(&key, 2, 0).unwrap();
        scene.finds(ProgramMap::Networks, "192.0.2.0/24", COMPARE_ALL_MS);
        scene.write_networks();
        assert_eq!(scene.find().0, []);
    });
}

#[test]
fn changes_of_loads_are_found_within_the_bound_and_written_again() {
    in_bed(|bed| {
        let mut scene = Scene::new(bed);
        let load = WeightedLoad { node: 1, weight: 3, load: 7 };
        scene.dispatch.set_loads(&[0, 1], &[load]).unwrap();
        assert_eq!(scene.find().0, []);
        for (service, node) in [(1, 1), (63, 1_023)] {
            let at = service * NODES_MAX as u32 + node;
            let value = |scene: &Scene<'_>| {
                let map: Array<MapData, [u8; 32]> = scene.map("loads").try_into().unwrap();
                map.get(&at, 0).unwrap()
            };
            let before = value(&scene);
            change_element(scene.map("loads"), at, |load: &mut [u8; 32]| load.fill(0xff));
            let key = format!("{node} of service {service}");
            scene.finds(ProgramMap::Loads, &key, COMPARE_ALL_MS);
            assert_eq!(value(&scene), before);
            assert_eq!(scene.find().0, []);
        }
    });
}

/// Writing again must not preserve what others have written.
#[test]
fn what_others_have_changed_is_not_what_changes_begin_with() {
    in_bed(|bed| {
        let mut scene = Scene::new(bed);
        change_element(scene.map("settings"), 0, |settings: &mut [u8; 48]| settings.fill(0xff));
        scene.dispatch.set_settings(&SETTINGS).unwrap();
        change_service(scene.map("services"), |service| service.fill(0xff));
        scene.dispatch.set_rows(&service(0), &rows(&[1])).unwrap();
        scene.dispatch.set_rows(&service(1), &rows(&[1])).unwrap();
        assert_eq!(scene.find().0, []);
    });
}
