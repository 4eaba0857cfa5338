//! The bytes on the disk: a change of them is seen here before anybody's directory cannot be read.

use redb::{Database, TableDefinition};

use super::super::database::{Data, FORMAT};
use super::super::journal::{Record, replay};
use super::*;
use crate::queue::Place;
use crate::queue::command::{LineCopy, ProvenLease};

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}

/// One record of each kind.
fn one_of_each() -> Vec<u8> {
    let settings = Settings::new(3);
    let origin = Origin::File(5);
    let heartbeat = Heartbeat { epoch: 60_000_000, gateway: 1, first: 8, bits: vec![1, 2] };
    let sighting = Sighting { head: 1, tail: 9, issued: START };
    let lease = ProvenLease { until: START, claimed: true };
    let place = Place { seq: Seq(2), entered: START };
    let evidence = Evidence { place, issued: START, lease: Some(lease) };
    let leases = [HeldLease { owner: tag(1), place, lease }];
    let copy = LineCopy {
        gone: vec![1, 2],
        late: [1].into(),
        admitted: 1,
        versions: Versions::default(),
        passed: vec![(1, 2)],
    };
    let recollection = Recollection { incarnation: 8, sighting, copy: Some(copy) };
    let commands = [
        Command::Create {
            incarnation: 7,
            previous: 0,
            settings: Cow::Borrowed(&settings),
            text_hash: Some(1),
        },
        Command::Configure { settings: Cow::Borrowed(&settings), origin: Cow::Borrowed(&origin) },
        Command::Enter { users: Cow::Owned(vec![tag(1), tag(2)]) },
        Command::Standing { user: tag(1), seq: Some(Seq(1)), purpose: Purpose::Pass },
        Command::Leave { user: tag(2), seq: None },
        Command::Admit { max: 1000, by: AdmitBy::Operator },
        Command::Heartbeat(Cow::Borrowed(&heartbeat)),
        Command::Reap,
        Command::Compact { keep: 64 },
        Command::Observe,
        Command::Fence { seen: sighting, server: Server::New, gap: 50 },
        Command::Revive { user: tag(1), evidence },
        Command::Restore { leases: Cow::Borrowed(&leases) },
        Command::Rebuild {
            settings: Cow::Borrowed(&settings),
            text_hash: None,
            from: Cow::Borrowed(&recollection),
            superseded: 7,
            gap: 50,
        },
    ];
    let mut bytes = Vec::new();
    for command in commands {
        Record { now: START, command }.append_to(&mut bytes);
    }
    bytes
}

/// When this fails, old data directories cannot be read any more: raise `FORMAT` and say in
/// `Data::open` what becomes of them. Appending a variant to `Command` changes nothing here.
#[test]
fn records_and_snapshots_are_written_as_format_1_says() {
    assert_eq!(FORMAT, 1);
    let records = one_of_each();
    assert_eq!(hex(&records), RECORDS);
    assert!(replay(None, &records).unwrap().is_some());
    // One of everything: more would stand in any order.
    let mut held = new_held(&Settings::new(1));
    held.enter(&[tag(1)], START);
    held.standing(tag(1), None, Purpose::Pass, START);
    held.heartbeat(&Heartbeat { epoch: 60_000_000, gateway: 1, first: 0, bits: vec![0x40] }, START);
    assert_eq!(hex(&postcard::to_stdvec(&held.line).unwrap()), SNAPSHOT);
}

const RECORDS: &str = "80a0f1c2b1340007000300c0cf2480dddb0100c8df02a0fe0ae0a712c0843d0000000000010180a0f1c2\
    b134010300c0cf2480dddb0100c8df02a0fe0ae0a712c0843d0000000000000580a0f1c2b13402029e37\
    79b97f4a7c153c6ef372fe94f82a80a0f1c2b134039e3779b97f4a7c1501010180a0f1c2b134043c6ef3\
    72fe94f82a0080a0f1c2b13405e8070180a0f1c2b13406808ece1c010802010280a0f1c2b1340780a0f1\
    c2b134084080a0f1c2b1340980a0f1c2b1340a010980a0f1c2b134013280a0f1c2b1340b9e3779b97f4a\
    7c150280a0f1c2b13480a0f1c2b1340180a0f1c2b1340180a0f1c2b1340c019e3779b97f4a7c150280a0\
    f1c2b13480a0f1c2b1340180a0f1c2b1340d0300c0cf2480dddb0100c8df02a0fe0ae0a712c0843d0000\
    0000000008010980a0f1c2b1340102010201010100000000000101020732";
const SNAPSHOT: &str = "070100c0cf2480dddb0100c8df02a0fe0ae0a712c0843d0000000000010180a0f1c2b134000201000001\
    9e3779b97f4a7c150180a0f1c2b1340180a0f1c2b134000101c0ef95c3b13401c0ef95c3b13401000000\
    80a0f1c2b1340180a4a7da0602000001808ece1c000140010101808ece1c00000002010101010180a0f1\
    c2b1340000000000000000";

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

fn set_format(directory: &std::path::Path, format: u64) {
    let database = Database::open(directory.join("anteroom.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(META).unwrap().insert("format", format).unwrap();
    transaction.commit().unwrap();
}

#[test]
fn a_directory_of_a_later_version_is_refused_in_words_and_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    drop(Data::open(directory.path()).unwrap());
    set_format(directory.path(), FORMAT + 1);
    let error = Data::open(directory.path()).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 2, known: 1, .. }), "{error:?}");
    assert!(error.to_string().contains(&directory.path().display().to_string()), "{error}");
    assert!(error.to_string().contains("later version"), "{error}");
    set_format(directory.path(), 0);
    assert!(matches!(Data::open(directory.path()), Err(OpenError::Damaged { .. })));
    set_format(directory.path(), FORMAT);
    Data::open(directory.path()).unwrap();
}

#[test]
fn a_directory_is_for_one_at_a_time_and_says_so_with_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let _first = Data::open(directory.path()).unwrap();
    let error = Data::open(directory.path()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error:?}");
    assert!(error.to_string().contains(&directory.path().display().to_string()), "{error}");
}

#[test]
fn what_is_no_data_directory_is_refused_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(matches!(Data::open(&file), Err(OpenError::Unusable { .. })));
    let deep = directory.path().join("not/there");
    assert!(matches!(Data::open(&deep), Err(OpenError::Unusable { .. })));
    let foreign = directory.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("anteroom.redb"), "this is a shopping list".repeat(500)).unwrap();
    let error = Data::open(&foreign).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    let new = directory.path().join("new");
    Data::open(&new).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode;
    assert_eq!(mode(&std::fs::metadata(&new).unwrap().permissions()) & 0o777, 0o700);
    let file = std::fs::metadata(new.join("anteroom.redb")).unwrap();
    assert_eq!(mode(&file.permissions()) & 0o777, 0o600);
}
