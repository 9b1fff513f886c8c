"""Jobs with the truth about them, by what is at fault: a file a kind of fault. `EVERY_CASE` is all of them."""

from tests.simulator.cases.across import ACROSS
from tests.simulator.cases.blind import BLIND
from tests.simulator.cases.captures import CAPTURES
from tests.simulator.cases.communication import COMMUNICATION
from tests.simulator.cases.copies import COPIES
from tests.simulator.cases.drawn import DRAWN
from tests.simulator.cases.files import FILES
from tests.simulator.cases.first_sight import FIRST_SIGHT
from tests.simulator.cases.further import FURTHER
from tests.simulator.cases.gpus import GPUS
from tests.simulator.cases.healthy import HEALTHY
from tests.simulator.cases.hosts import HOSTS
from tests.simulator.cases.imbalance import IMBALANCE
from tests.simulator.cases.kernels import KERNELS
from tests.simulator.cases.links import LINKS
from tests.simulator.cases.loading import LOADING
from tests.simulator.cases.memory import MEMORY
from tests.simulator.cases.one_gpu import ONE_GPU
from tests.simulator.cases.pauses import PAUSES
from tests.simulator.cases.pipelines import PIPELINES
from tests.simulator.cases.reads import READS
from tests.simulator.cases.roles import ROLES
from tests.simulator.cases.roles_further import ROLES_FURTHER
from tests.simulator.cases.stacks import STACKS
from tests.simulator.cases.together import TOGETHER
from tests.simulator.cases.transformers import TRANSFORMERS
from tests.simulator.cases.turns import TURNS
from tests.simulator.cases.unseen import UNSEEN

EVERY_CASE = (
    *KERNELS,
    *GPUS,
    *IMBALANCE,
    *LOADING,
    *COPIES,
    *MEMORY,
    *HOSTS,
    *TURNS,
    *PAUSES,
    *READS,
    *LINKS,
    *COMMUNICATION,
    *PIPELINES,
    *TOGETHER,
    *ONE_GPU,
    *HEALTHY,
    *CAPTURES,
    *FILES,
    *TRANSFORMERS,
    *STACKS,
    *FURTHER,
    *DRAWN,
    *UNSEEN,
    *FIRST_SIGHT,
    *ACROSS,
    *ROLES,
    *ROLES_FURTHER,
    *BLIND,
)
