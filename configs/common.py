"""The keys that every configuration has, with their defaults.

A configuration file starts from `base()`, changes what it is about, and locks the result, so that a
misspelt key on the command line is refused.
"""

from ml_collections import ConfigDict, config_dict


def base() -> ConfigDict:
    """The common configuration, locked."""
    config = ConfigDict()
    # A network of the zoo (inception_v3, resnet50, bert_base, rnnlm, nmt), a path to .xml, .onnx,
    # .tflite, .pb or .json (a workload of Tarnawski et al., with devices and costs of its own), or
    # a synthetic graph such as 'synthetic:family=layered,ops=1000,seed=0'.
    config.graph = "inception_v3"
    # Shapes of dynamic inputs, such as 'images:1,3,224,224;ids:1,128'.
    config.input_shapes = ""
    # True: the full view, as in HSDAG's paper. False: without constants and their conversions.
    config.constants = True
    # 'auto', 'host', a comma list of OpenVINO devices such as 'CPU,GPU.0', or described hardware
    # that needs none, such as 'roofline:cpu,gpu,gpu' (kinds: docs/DEVICES.md).
    config.devices = "auto"
    # What operations cost: '' profiles the devices; or a path to the profile.json of another run,
    # such as one of another machine, whose devices need not be here with evaluate=simulate.
    config.costs = ""
    # 'serial' (HETERO), 'makespan' (devices overlap), 'max_load' (pipeline) or 'subgraph'.
    config.objective = "serial"
    # One method for --task=place.
    config.method = "hsdag"
    # Of --task=compare: comma lists of methods (or 'all') and of graphs ('' is config.graph), and
    # how many seeds, from config.seed on.
    config.methods = "all"
    config.graphs = ""
    config.seeds = 1
    # 'simulate', 'measure' or 'simulate+verify'.
    config.evaluate = "simulate+verify"
    # Placements evaluated by each search, the single devices included.
    config.budget = 32_000
    config.seed = 0
    # Wall time of each search.
    config.time_limit_s = 60.0
    # Wall time of timing the placements in the final table, compilation not included.
    config.measure_s = 30.0
    # Of --task=profile: placements measured to calibrate the costs, and as many to check them.
    config.calibration_placements = 60
    # Blocks of node features; leave some out for an ablation.
    config.features = "op_type,degrees,fractal,positional,output_shape"
    # Of HSDAG: 'tuned', 'paper' or 'released'. The keys below override single hyper-parameters of
    # the variant; what they mean stands at `policies.hsdag.make`, `learning.base.Settings` and
    # `learning.ppo.make`.
    config.variant = "tuned"
    config.policy = ConfigDict(
        {
            "hidden_size": config_dict.placeholder(int),
            "levels": config_dict.placeholder(int),
            "threshold": config_dict.placeholder(float),
            "decide": config_dict.placeholder(str),
            "episode_steps": config_dict.placeholder(int),
        }
    )
    config.learner = ConfigDict(
        {
            "algorithm": config_dict.placeholder(str),  # 'reinforce' or 'ppo'
            "num_samples": config_dict.placeholder(int),
            "learning_rate": config_dict.placeholder(float),
            "reward": config_dict.placeholder(str),
            "baseline": config_dict.placeholder(str),
            "discount": config_dict.placeholder(float),
            "entropy_weight": config_dict.placeholder(float),
            "max_grad_norm": config_dict.placeholder(float),
            # Of PPO alone.
            "epochs": config_dict.placeholder(int),
            "num_minibatches": config_dict.placeholder(int),
            "clip": config_dict.placeholder(float),
        }
    )
    return config.lock()
