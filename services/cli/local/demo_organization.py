"""The organization that a fresh local stack is shown with: one person per role, each with a session."""

from typing import Final
from uuid import UUID

from services.cli.administration import Administration, administration_at
from services.cli.local.state import DemoOrganization, DemoSession, StateFolder

NAME: Final = "Demo Restaurant"
BUSINESS_UNIT: Final = "Centro"

# Who there is: the word shown to people, the role's code, and whether the role is for one business unit only.
_PEOPLE: Final = (
    ("owner", "organization_owner", False),
    ("manager", "manager", False),
    ("one-unit manager", "manager", True),
    ("cashier", "cashier", False),
    ("waiter", "waiter", False),
)


async def ensure_demo_organization(state: StateFolder, operator_dsn: str) -> DemoOrganization:
    """The demo organization with a living session for each of its people; what is still there is kept."""
    async with administration_at(operator_dsn) as operator:
        kept = state.demo()
        known = {str(organization.id) for organization in await operator.organizations()}
        if kept is not None and kept.organization_id in known:
            organization_id, sessions = UUID(kept.organization_id), {member.role: member for member in kept.members}
        else:
            organization_id, sessions = await operator.create_organization(NAME, "pionero"), {}
        living = {str(session.id) for session in await operator.sessions(None) if session.lives}
        members = []
        for role, code, one_unit in _PEOPLE:
            session = sessions.get(role)
            if session is None or session.session_id not in living:
                session = await _person(operator, organization_id, role, code, one_unit=one_unit)
            members.append(session)
    demo = DemoOrganization(str(organization_id), NAME, tuple(members))
    state.keep_demo(demo)
    return demo


async def _person(
    operator: Administration, organization_id: UUID, role: str, code: str, *, one_unit: bool
) -> DemoSession:
    # The organization is part of the address: a second demo organization in one database has people of its own.
    email = f"{role.replace(' ', '-')}@{organization_id.hex[-12:]}.demo.example"
    unit = await operator.create_business_unit(organization_id, BUSINESS_UNIT) if one_unit else None
    membership_id = await operator.add_member(organization_id, email, role.capitalize(), code, unit)
    session_id, token = await operator.create_session(email)
    return DemoSession(role, str(membership_id), str(session_id), token)
