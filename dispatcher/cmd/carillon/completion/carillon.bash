# bash completion of carillon
_carillon_words() {
  case "$1" in
@cases@
  esac
}
_carillon() {
  local command="" word i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    case " $(_carillon_words "$command") " in
    *" $word "*) [[ $word == -* ]] || command="${command:+$command }$word" ;;
    esac
  done
  COMPREPLY=($(compgen -W "$(_carillon_words "$command")" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _carillon carillon
