//! A handoff of a machine to itself: the donor's socket must be closed before the receiver's is restored.

use skep_repair::{RestoreError, close_silently, restore};

use crate::common::{BOTH, Bed, Place, create, patient, restored_socket, set_repair};
use crate::talk::{begin_request, finish};

#[test]
fn a_connection_moves_to_another_socket_of_the_same_machine() {
    let Some(bed) = Bed::new() else { return };
    for ip in BOTH {
        let mut connection = bed.connection(ip);
        begin_request(&mut connection);
        let state = connection.freeze(&bed).unwrap();
        let early = bed.donor.run(|| create(connection.id));
        let error = restore(&early, &connection.id, &state).unwrap_err();
        assert!(matches!(error, RestoreError::Taken), "{error}");
        close_silently(connection.server.into()).unwrap();
        // A socket that failed to be restored is unusable.
        close_silently(early.into()).unwrap();
        let server = restored_socket(&bed.donor, &connection.id, &state).unwrap();
        bed.steer(Place::Donor);
        set_repair(&server, false);
        server.set_nonblocking(false).unwrap();
        connection.server = patient(server.into());
        finish(connection);
    }
}
