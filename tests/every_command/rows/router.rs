//! Settings of the cluster, users, and the router itself.

use bson::doc;

use super::{Row, Want, row};

pub(super) fn settings() -> Vec<Row> {
    vec![
        row("getDefaultRWConcern")
            .admin(doc! { "getDefaultRWConcern": 1 })
            .bad_admin(14, doc! { "getDefaultRWConcern": 1, "inMemory": "x" }),
        row("setDefaultRWConcern")
            .admin(doc! { "setDefaultRWConcern": 1, "defaultReadConcern": { "level": "local" } })
            .bad_admin(2, doc! { "setDefaultRWConcern": 1 })
            .bad_admin(14, doc! { "setDefaultRWConcern": 1, "defaultReadConcern": 5 }),
        row("setFeatureCompatibilityVersion")
            .admin(doc! { "setFeatureCompatibilityVersion": "6.0" })
            .bad_admin(4_926_900, doc! { "setFeatureCompatibilityVersion": "1.0" })
            .bad_admin(14, doc! { "setFeatureCompatibilityVersion": 5 }),
        row("getClusterParameter")
            .lenient()
            .admin(doc! { "getClusterParameter": "*" })
            .bad_admin(4, doc! { "getClusterParameter": "nosuch" }),
        row("setClusterParameter")
            .lenient()
            .admin(doc! { "setClusterParameter": { "testIntClusterParameter": { "intData": 5 } } })
            .bad_admin(14, doc! { "setClusterParameter": 5 }),
        row("setUserWriteBlockMode")
            .admin(doc! { "setUserWriteBlockMode": 1, "global": true })
            .call("every", doc! { "insert": "u", "documents": [{}] }, Want::WriteError(371))
            .admin(doc! { "setUserWriteBlockMode": 1, "global": false })
            .bad_admin(14, doc! { "setUserWriteBlockMode": 1, "global": "x" }),
    ]
}

pub(super) fn users() -> Vec<Row> {
    let privilege = doc! { "resource": { "db": "every", "collection": "c" }, "actions": ["find"] };
    vec![
        row("createRole")
            .ok(doc! { "createRole": "r", "privileges": [], "roles": [] })
            .ok(doc! { "createRole": "r2", "privileges": [], "roles": [] })
            .bad(51002, doc! { "createRole": "r", "privileges": [], "roles": [] })
            .bad(14, doc! { "createRole": 5, "privileges": [], "roles": [] }),
        row("updateRole").ok(doc! { "updateRole": "r", "roles": [] }).bad(31, doc! { "updateRole": "nosuch", "roles": [] }),
        row("grantPrivilegesToRole")
            .ok(doc! { "grantPrivilegesToRole": "r", "privileges": [privilege.clone()] })
            .bad(31, doc! { "grantPrivilegesToRole": "nosuch", "privileges": [privilege.clone()] })
            .bad(14, doc! { "grantPrivilegesToRole": "r", "privileges": 5 }),
        row("revokePrivilegesFromRole")
            .ok(doc! { "revokePrivilegesFromRole": "r", "privileges": [privilege] })
            .bad(14, doc! { "revokePrivilegesFromRole": "r", "privileges": 5 }),
        row("grantRolesToRole")
            .ok(doc! { "grantRolesToRole": "r", "roles": ["r2"] })
            .bad(31, doc! { "grantRolesToRole": "r", "roles": ["nosuch"] }),
        row("revokeRolesFromRole")
            .ok(doc! { "revokeRolesFromRole": "r", "roles": ["r2"] })
            .bad(14, doc! { "revokeRolesFromRole": "r", "roles": 5 }),
        row("rolesInfo").ok(doc! { "rolesInfo": "r" }).ok(doc! { "rolesInfo": 1 }),
        row("createUser")
            .ok(doc! { "createUser": "a", "pwd": "secret", "roles": [] })
            .bad(51003, doc! { "createUser": "a", "pwd": "secret", "roles": [] })
            .bad(14, doc! { "createUser": "b", "pwd": 5, "roles": [] })
            .bad(2, doc! { "createUser": "", "pwd": "x", "roles": [] }),
        row("updateUser")
            .ok(doc! { "updateUser": "a", "pwd": "other" })
            .bad(11, doc! { "updateUser": "nosuch", "pwd": "x" }),
        row("grantRolesToUser")
            .ok(doc! { "grantRolesToUser": "a", "roles": ["r"] })
            .bad(11, doc! { "grantRolesToUser": "nosuch", "roles": ["r"] }),
        row("revokeRolesFromUser")
            .ok(doc! { "revokeRolesFromUser": "a", "roles": ["r"] })
            .bad(14, doc! { "revokeRolesFromUser": "a", "roles": 5 }),
        row("usersInfo").ok(doc! { "usersInfo": "a" }).ok(doc! { "usersInfo": 1 }),
        row("invalidateUserCache").ok(doc! { "invalidateUserCache": 1 }),
        row("dropUser").ok(doc! { "dropUser": "a" }).bad(11, doc! { "dropUser": "a" }).bad(14, doc! { "dropUser": 5 }),
        row("dropRole").ok(doc! { "dropRole": "r" }).bad(31, doc! { "dropRole": "r" }),
        row("dropAllUsersFromDatabase").ok(doc! { "dropAllUsersFromDatabase": 1 }),
        row("dropAllRolesFromDatabase").ok(doc! { "dropAllRolesFromDatabase": 1 }),
        row("_mergeAuthzCollections")
            .bad_admin(2, doc! { "_mergeAuthzCollections": 1, "tempUsersCollection": "", "tempRolesCollection": "", "db": "x", "drop": false }),
    ]
}

pub(super) fn process() -> Vec<Row> {
    vec![
        row("serverStatus")
            .lenient()
            .admin(doc! { "serverStatus": 1 })
            .ok(doc! { "serverStatus": 1, "metrics": 0 }),
        row("hostInfo").lenient().ok(doc! { "hostInfo": 1 }),
        row("getLog")
            .lenient()
            .admin(doc! { "getLog": "global" })
            .admin(doc! { "getLog": "*" })
            .bad_admin(14, doc! { "getLog": 5 })
            .bad_admin(96, doc! { "getLog": "nosuch" }),
        row("getCmdLineOpts").lenient().admin(doc! { "getCmdLineOpts": 1 }),
        row("connPoolStats").lenient().ok(doc! { "connPoolStats": 1 }),
        row("connPoolSync").lenient().ok(doc! { "connPoolSync": 1 }),
        row("replSetGetStatus").lenient().call("admin", doc! { "replSetGetStatus": 1 }, Want::NoCode),
        row("getParameter").lenient().admin(doc! { "getParameter": "*" }).call(
            "admin",
            doc! { "getParameter": 1, "nosuch": 1 },
            Want::NoCode,
        ),
        row("setParameter")
            .lenient()
            .admin(doc! { "setParameter": 1, "logLevel": 0 })
            .call("admin", doc! { "setParameter": 1, "nosuch": 1 }, Want::NoCode)
            .bad_admin(2, doc! { "setParameter": 1, "logLevel": "x" })
            .bad_admin(14, doc! { "setParameter": 1, "logComponentVerbosity": 5 })
            .bad_admin(2, doc! { "setParameter": 1, "logComponentVerbosity": { "nosuch": 1 } }),
        row("configureFailPoint")
            .lenient()
            .admin(doc! { "configureFailPoint": "failCommand", "mode": "off" })
            .bad_admin(266, doc! { "configureFailPoint": "nosuch", "mode": "off" }),
        row("profile")
            .lenient()
            .ok(doc! { "profile": 0 })
            .ok(doc! { "profile": -1, "slowms": 100, "sampleRate": 1.0, "filter": "unset" })
            .bad(14, doc! { "profile": "x" })
            .bad(14, doc! { "profile": 0, "slowms": "x" })
            .bad(2, doc! { "profile": 0, "sampleRate": 2 })
            .bad(2, doc! { "profile": 1 }),
        row("availableQueryOptions")
            .lenient()
            .ok(doc! { "availableQueryOptions": 1 })
            .ok(doc! { "availablequeryoptions": 1 }),
        row("getLastError").lenient().bad(5_739_000, doc! { "getLastError": 1 }),
        row("setFreeMonitoring").lenient().admin(doc! { "setFreeMonitoring": 1, "action": "disable" }),
        row("getDiagnosticData").lenient().bad_admin(115, doc! { "getDiagnosticData": 1 }),
        row("dropConnections")
            .lenient()
            .bad_admin(115, doc! { "dropConnections": 1, "hostAndPort": ["x:1"] }),
        row("rotateCertificates").lenient().bad_admin(115, doc! { "rotateCertificates": 1 }),
        row("startRecordingTraffic").lenient().bad(115, doc! { "startRecordingTraffic": 1, "filename": "x" }),
        row("stopRecordingTraffic").lenient().bad(115, doc! { "stopRecordingTraffic": 1 }),
        row("setProfilingFilterGlobally")
            .lenient()
            .bad(115, doc! { "setProfilingFilterGlobally": 1, "filter": {} }),
        row("_killOperations").lenient().bad_admin(115, doc! { "_killOperations": 1 }),
        row("logRotate")
            .admin(doc! { "logRotate": 1 })
            .admin(doc! { "logRotate": "server" })
            .bad_admin(4, doc! { "logRotate": "nosuch" }),
        // What it does when all is right: tests/diagnostics.rs.
        row("shutdown")
            .lenient()
            .bad_admin(40415, doc! { "shutdown": 1, "nosuchField": 1 })
            .bad_admin(14, doc! { "shutdown": 1, "timeoutSecs": "x" })
            .bad_admin(14, doc! { "shutdown": 1, "force": "x" }),
    ]
}
