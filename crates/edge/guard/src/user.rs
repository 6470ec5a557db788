//! The user that a serving process changes to: looked up by name in this machine's files.

use std::path::Path;

/// Users of this machine (passwd(5)), and its groups (group(5)). They include service users, but not users of
/// a directory service such as LDAP.
const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// The default serving users: the one that packages create, else the one that owns no files.
const OWN: &str = "skep";
const NOBODY: &str = "nobody";

/// A user with its groups, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, for messages.
    pub name: String,
    /// The user.
    pub uid: u32,
    /// Its own group.
    pub gid: u32,
    /// Its supplementary groups; it has no others.
    pub groups: Vec<u32>,
}

/// The user or group does not exist.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The user in the config.
    #[error(
        "this machine has no user {name:?} ({PASSWD}): `useradd --system {name}` makes it, or \
         name another one ({setting})",
        setting = "machine.user, or --user"
    )]
    NoUser { name: String },
    /// Neither default user exists.
    #[error(
        "started as root, this process serves as another user, and this machine has neither \
         {OWN:?} nor {NOBODY:?} ({PASSWD}): name one (machine.user, or --user)"
    )]
    NobodyAtAll,
    /// A group in the config.
    #[error("this machine has no group {name:?} ({GROUP}), which machine.groups names")]
    NoGroup { name: String },
}

impl User {
    /// The serving user: the user of this process, or, if that is root, the user `name`, by
    /// default [`OWN`] or [`NOBODY`], with exactly `groups`. Names may be numbers.
    pub fn serving(name: Option<&str>, groups: &[String]) -> Result<Self, UserError> {
        match rustix::process::geteuid().is_root() {
            true => Self::find(name, groups),
            false => Ok(Self::current()),
        }
    }

    /// Finds the user with this name, independent of this process.
    pub fn find(name: Option<&str>, groups: &[String]) -> Result<Self, UserError> {
        Lists::read().user(name, groups)
    }

    /// The user of this process.
    pub fn current() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let groups = rustix::process::getgroups().unwrap_or_default();
        Self {
            name: name_of(uid),
            uid,
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(rustix::process::Gid::as_raw).collect(),
        }
    }
}

/// The name of a user, for messages; the number if it has none.
pub(crate) fn name_of(uid: u32) -> String {
    let lists = Lists::read();
    let found = lists.users().find(|user| user.uid == uid);
    found.map_or_else(|| uid.to_string(), |user| user.name)
}

/// The contents of the two files.
struct Lists {
    passwd: String,
    group: String,
}

impl Lists {
    fn read() -> Self {
        // A machine without these files has no names; numbers work.
        let read = |path| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
        Self { passwd: read(PASSWD), group: read(GROUP) }
    }

    fn user(&self, name: Option<&str>, groups: &[String]) -> Result<User, UserError> {
        let found = match name {
            Some(name) => self.named(name).ok_or_else(|| UserError::NoUser { name: name.into() }),
            None => self.named(OWN).or_else(|| self.named(NOBODY)).ok_or(UserError::NobodyAtAll),
        };
        let groups = groups.iter().map(|name| self.group(name)).collect::<Result<_, _>>()?;
        Ok(User { groups, ..found? })
    }

    /// A number without an entry is a valid user, whose group has the same number.
    fn named(&self, name: &str) -> Option<User> {
        let number = name.parse::<u32>().ok();
        let is_it = |user: &User| user.name == name || Some(user.uid) == number;
        let unlisted = |uid| User { name: name.to_owned(), uid, gid: uid, groups: Vec::new() };
        self.users().find(is_it).or_else(|| number.map(unlisted))
    }

    /// Parses lines `name:password:uid:gid:comment:home:shell`.
    fn users(&self) -> impl Iterator<Item = User> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?.to_owned();
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            Some(User { name, uid, gid, groups: Vec::new() })
        })
    }

    /// Parses lines `name:password:gid:members`.
    fn group(&self, name: &str) -> Result<u32, UserError> {
        let listed = self.group.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
        });
        let missing = || UserError::NoGroup { name: name.to_owned() };
        listed.or_else(|| name.parse().ok()).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const PACKAGED: &str = "root:x:0:0:root:/root:/bin/sh\n# a comment\nbroken:x\n\
                            skep:x:998:997::/:/usr/sbin/nologin\n\
                            nobody:x:65534:65533:nobody:/:/usr/sbin/nologin\n";

    fn lists(passwd: &str) -> Lists {
        Lists { passwd: passwd.into(), group: "root:x:0:\nphp:x:33:a,b\n".into() }
    }

    fn ids(found: Result<User, UserError>) -> Option<(u32, u32)> {
        found.ok().map(|user| (user.uid, user.gid))
    }

    #[test]
    fn who_is_not_named_is_the_packages_user_else_nobody_and_never_root() {
        assert_eq!(ids(lists(PACKAGED).user(None, &[])), Some((998, 997)));
        let bare = PACKAGED.replace("skep:", "other:");
        assert_eq!(ids(lists(&bare).user(None, &[])), Some((65_534, 65_533)));
        let empty = lists("root:x:0:0:root:/root:/bin/sh\n").user(None, &[]);
        assert!(matches!(empty, Err(UserError::NobodyAtAll)));
    }

    #[test]
    fn users_and_groups_have_names_or_numbers() {
        let lists = lists(PACKAGED);
        for (name, expected) in [
            ("root", Some((0, 0))),
            ("998", Some((998, 997))),
            ("70000", Some((70_000, 70_000))),
            ("broken", None),
            ("nosuch", None),
            ("", None),
        ] {
            assert_eq!(ids(lists.user(Some(name), &[])), expected, "{name}");
        }
        let with = |groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|it| (*it).to_owned()).collect();
            lists.user(Some("skep"), &groups).map(|user| user.groups)
        };
        assert_eq!(with(&["php", "44"]).unwrap(), [33, 44]);
        assert!(matches!(with(&["php", "nosuch"]), Err(UserError::NoGroup { .. })));
    }
}
